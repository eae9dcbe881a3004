"""Looking into a run: what was in an update, where two runs part, what an update would have come to otherwise."""
