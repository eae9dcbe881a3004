"""Translating lines: search, scores, tags."""
