"""Runs the programs compared with zeromt: Eole, Transformers."""
