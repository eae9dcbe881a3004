"""Metrics that are commands, beside training."""
