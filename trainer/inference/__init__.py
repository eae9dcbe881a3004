"""Trained weights, loaded; lines to lines with them."""
