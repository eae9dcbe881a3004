"""What can go wrong in training: loss spikes, skipped updates, insufficient memory; which attention is fastest."""
