"""FLOPs of a model and data-sheet figures of GPUs, for `zeromt plan` and for the metrics of a run."""
