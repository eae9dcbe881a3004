"""What the filters in this folder read: lines of JSON, as many at a time as are there."""

import json
import sys
import threading
from queue import Empty, SimpleQueue
from typing import Any


def batches(size: int) -> Any:
    """What is there on standard input, at most `size` lines at a time."""
    lines: SimpleQueue[str] = SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    while first := lines.get():
        batch, is_end = [json.loads(first)], False
        while len(batch) < size and not is_end:
            try:
                line = lines.get(timeout=0.05)
            except Empty:
                break
            is_end = not line
            batch += [json.loads(line)] if line else []
        yield batch
        if is_end:
            return
