"""Scores of held-out sets while training."""
