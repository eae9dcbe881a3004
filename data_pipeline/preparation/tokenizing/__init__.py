"""The tokenizer of a dataset: how it is trained, and what it does not know."""
