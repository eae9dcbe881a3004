"""Time from a command to the first update."""
