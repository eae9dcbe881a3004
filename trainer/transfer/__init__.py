"""A run that begins from the weights of another (`--from`): found, verified, in the new run's vocabulary."""
