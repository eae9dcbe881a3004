"""Beginning a run from another's weights (`--from`): finding, verifying and fitting them to the new vocabulary."""
