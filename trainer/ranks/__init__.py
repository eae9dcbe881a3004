"""A rank: its place in the world, number format and settings, and the limits of what it does."""
