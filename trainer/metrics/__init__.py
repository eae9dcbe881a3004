"""Metrics of translations, and scoring with them."""
