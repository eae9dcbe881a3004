"""`zeromt doctor`: what of this machine, and of a configuration on it, would end, slow down or falsify a run."""
