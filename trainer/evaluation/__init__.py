"""Scores of held-out sets while training, and of any test set: `zeromt evaluate`."""
