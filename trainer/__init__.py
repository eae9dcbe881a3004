"""The loop, the DeepSpeed engine, checkpoints, evaluation and metrics."""
