"""Which script and which language a text is in."""
