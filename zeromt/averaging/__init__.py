"""`zeromt average`: the weights of several checkpoints, averaged into a new run."""
