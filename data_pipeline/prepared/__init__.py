"""A prepared dataset: its files, here or remote, verified before use."""
