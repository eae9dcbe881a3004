"""`python -m benchmarks.device.report_card`: all that a GPU can tell, a cell at a time."""
