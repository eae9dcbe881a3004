"""A rank: its place in the world, number format and settings, and the watchdog beside it."""
