"""From pairs to a dataset: spans are encoded and scattered, shards gathered and written, the index last."""
