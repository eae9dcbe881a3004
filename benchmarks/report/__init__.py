"""The page docs/benchmarks.md: which results answer which question, in a table and a plot."""
