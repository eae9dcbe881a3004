"""Longer checks: chaos, plans against measured bytes, exports."""
