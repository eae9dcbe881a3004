"""A rank: its place in the world, its precision and settings, and its time limits."""
