"""What a run is doing, seen from outside: `zeromt status` and `zeromt stop`."""
