"""Metrics that are commands, run while training goes on."""
