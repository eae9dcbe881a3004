"""From a command to the first update."""
