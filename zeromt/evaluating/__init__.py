"""`zeromt evaluate`: scores of a test set."""
