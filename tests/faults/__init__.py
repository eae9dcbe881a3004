"""Faults that a run must survive, on real ranks."""
