"""Benchmarks of data preparation, storage, reading and planning."""
