"""Parents (`--from RUN[@step]`): how they are named, and what a run records of its own. No torch."""
