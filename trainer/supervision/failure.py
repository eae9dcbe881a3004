"""What a rank leaves behind when it fails, so that the cause can be told from its victims."""

import contextlib
import json
import os
import time
import traceback
from pathlib import Path

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
"""Environment variable in which torchrun names a file of each rank."""


def note_failure(error: BaseException) -> None:
    """Write the error and its time to the file that torchrun gave this rank, in torchrun's own format.

    Call it before anything else that may take time: the rank with the earliest note is the cause, since the others
    fail when they miss it. Without torchrun it does nothing.
    """
    path = os.environ.get(ERROR_FILE)
    if path is None:
        return
    now = time.time()
    trace = "".join(traceback.format_exception(error))
    note = {
        "message": {
            "message": f"{type(error).__name__}: {error}",
            "extraInfo": {"py_callstack": trace, "timestamp": str(int(now))},
        },
        "time": now,
    }
    with contextlib.suppress(OSError):
        beside = Path(f"{path}.{os.getpid()}.tmp")
        beside.write_text(json.dumps(note), encoding="utf-8")
        beside.replace(path)
