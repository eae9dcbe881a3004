"""Starts the ranks of a run by torchrun, on this machine or as one node of several, and says how they ended."""
