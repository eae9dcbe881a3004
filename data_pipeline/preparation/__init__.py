"""From raw text to a prepared dataset."""
