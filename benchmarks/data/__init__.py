"""Benchmarks of data preparation and reading."""
