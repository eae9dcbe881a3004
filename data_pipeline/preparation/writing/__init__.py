"""From pairs to a dataset: parts are encoded and scattered, shards gathered and written, the index last."""
