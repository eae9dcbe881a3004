"""`python -m benchmarks.device.report_card`: everything that a GPU can tell, one cell at a time."""
