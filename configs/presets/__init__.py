"""Models that are shipped, by name: `preset: NAME` in a run's file, or `preset=NAME` on the command line."""
