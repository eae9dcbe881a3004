"""What the user of a terminal or a log file reads of a run: a table, a line now and then, a bar, a summary."""
