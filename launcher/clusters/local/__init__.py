"""This machine alone."""
