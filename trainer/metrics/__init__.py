"""Metrics of translations, and scores by them."""
