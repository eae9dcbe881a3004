"""`zeromt inspect` and `batch`: the pairs of an update, and what a dataset, a checkpoint or a run holds."""
