"""Lines to lines: search, scores, tags."""
