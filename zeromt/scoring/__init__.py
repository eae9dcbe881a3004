"""Models as judges of a dataset: the command `score`."""
