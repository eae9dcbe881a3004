"""`zeromt sweep`: the same run with several values of some settings, and what came of each, in one table."""
