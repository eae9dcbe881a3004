"""Watching and stopping a run from outside: `zeromt status`, `stop` and `log`."""
