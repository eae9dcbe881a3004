"""Preparing, storing, reading and planning data."""
