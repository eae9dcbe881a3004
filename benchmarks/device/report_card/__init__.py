"""`python -m benchmarks.device.report_card`: every measurement that needs a GPU, one table cell at a time."""
