"""Benchmarks of training: speed compared with other programs and commits."""
