"""Writing a dataset: spans are encoded and scattered over shards, shards are gathered and written, then the index."""
