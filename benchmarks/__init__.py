"""Benchmarks of zeromt. README.md lists them; `python -m benchmarks.FOLDER.NAME --help` explains each."""
