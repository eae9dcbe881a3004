"""Shipped models, by name: `preset: NAME` in a run's file, or `preset=NAME` on the command line."""
