"""Import of weights that others trained, as runs of this project. Nothing is ever unpickled."""
