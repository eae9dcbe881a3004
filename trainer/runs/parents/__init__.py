"""Runs that others begin from (`--from RUN[@step]`): how they are named, and what a run says of its own. No torch."""
