"""Benchmarks on GPUs, and estimates for GPUs."""
