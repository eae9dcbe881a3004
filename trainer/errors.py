"""What ends a run that cannot go on."""


class TrainingError(Exception):
    """Gradients stay non-finite, replicas differ, memory does not suffice, or nothing can be saved."""
