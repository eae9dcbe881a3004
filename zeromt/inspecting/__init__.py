"""Inspecting a run: the pairs of an update, where two runs diverge, an update's loss without some of the data."""
