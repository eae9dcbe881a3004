"""Profiles of clusters, by name or as a start for one's own: `zeromt launch KIND --site NAME`."""
