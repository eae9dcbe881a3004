"""Decoding speed compared with other programs."""
