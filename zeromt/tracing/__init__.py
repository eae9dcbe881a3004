"""Where a line of a corpus comes from, step by step down to its text files: the command `trace`."""
