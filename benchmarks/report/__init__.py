"""Sections of docs/benchmarks.md: for each question its results, as tables and a plot."""
