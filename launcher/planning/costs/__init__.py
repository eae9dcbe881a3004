"""What training a model costs: memory, communication, latency. FLOPs stand in `model.costs`."""
