"""Augmentation of a window's pairs: by text, and by other pieces for the same words."""
