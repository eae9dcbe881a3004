"""A prepared dataset: its files, local or remote, verified before use."""
