"""Benchmarks of data preparation, storage and reading."""
