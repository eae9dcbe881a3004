"""This machine: its cores and GPUs, and its processes."""
