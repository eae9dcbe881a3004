"""Scores of pairs while a dataset is prepared: from fields of the corpus, and from commands."""
