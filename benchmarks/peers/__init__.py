"""Runs the programs compared with zeromt: Eole, JoeyNMT, Transformers."""
