"""What can go wrong in training: loss spikes, skipped updates, insufficient memory; how rows attend."""
