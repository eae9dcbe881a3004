"""Raw text -> tokenised shards -> batches. Knows nothing of models or DeepSpeed."""
