"""This machine: its cores and GPUs, and processes started, named, watched and ended on it."""
