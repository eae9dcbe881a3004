"""Scores of pairs while a dataset is prepared: from fields, files and commands, kept, and counted."""
