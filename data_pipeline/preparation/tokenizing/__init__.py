"""The tokenizer of a dataset: its training, and its unknown pieces."""
