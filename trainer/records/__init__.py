"""What a run records while it trains: metrics, the pairs of each update, and samples of translations."""
