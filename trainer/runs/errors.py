"""What ends a run that cannot go on."""


class TrainingError(Exception):
    """Training cannot go on: gradients stay non-finite, replicas differ, memory runs out, or saving keeps failing."""


def says_all(error: BaseException) -> bool:
    """Whether an error's message says everything, so that a traceback would only hide it.

    That is so if training gave a reason, or if the operating system did, such as a full disk.
    """
    return isinstance(error, TrainingError) or (isinstance(error, OSError) and error.errno is not None)
