"""What a run writes down while it trains: metrics, pairs, the file of TensorBoard."""
