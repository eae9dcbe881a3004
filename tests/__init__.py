"""The tests: folders of the same names test the folders above; the others are these."""
