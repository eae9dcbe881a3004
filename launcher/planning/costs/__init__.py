"""What a model costs: parameters, FLOPs, memory, communication."""
