"""Profiles of clusters, by name or as a start for one's own: `zeromt launch slurm --site NAME`."""
