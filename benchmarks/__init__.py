"""Measurements of zeromt; each script is run by its path and explains itself with `--help`."""
