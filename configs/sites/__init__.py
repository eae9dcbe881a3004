"""Profiles of clusters, by name or as a template for your own: `zeromt launch slurm --site NAME`."""
