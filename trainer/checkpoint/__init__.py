"""Saving, verifying, keeping and resuming checkpoints."""
