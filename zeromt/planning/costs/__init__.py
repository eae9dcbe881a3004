"""The costs of training a model: memory, communication and latency. FLOPs are in `model.flops`."""
