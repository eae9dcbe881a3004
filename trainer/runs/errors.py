"""What ends a run that cannot go on."""


class TrainingError(Exception):
    """Gradients stay non-finite, replicas differ, memory does not suffice, or nothing can be saved."""


def says_all(error: BaseException) -> bool:
    """Whether an error's own line is all there is to say: a traceback would only hide it.

    So it is where training gave a reason, and where the system did, as of a disk that is full.
    """
    return isinstance(error, TrainingError) or (isinstance(error, OSError) and error.errno is not None)
