"""Decided before the first update: the implementation of attention, and what fits in memory."""
