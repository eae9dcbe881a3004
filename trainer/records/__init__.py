"""What a run records while it trains: metrics, and samples of translations."""
