"""Measurements of zeromt: `python -m benchmarks.ROOM.NAME --help` explains each; README.md lists them."""
