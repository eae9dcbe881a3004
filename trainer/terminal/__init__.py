"""A run's output for a terminal or log file: a table at the start, log lines, a progress bar, a summary."""
