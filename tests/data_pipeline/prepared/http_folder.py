"""An HTTP server on loopback that serves a folder, with faults."""

import random
import re
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

from tests.waiting import PATIENCE

Fault = str
FAULTS: tuple[Fault, ...] = ("drop", "cut", "flip", "503", "delay")


class HttpFolder:
    """Serves a folder until it is left; a context manager.

    Args:
        folder: what is served.
        ranges: answer to byte ranges; Python's own server does not.
        fault: the fault of a request, given its file and its number.
    """

    def __init__(
        self, folder: Path, *, ranges: bool = True, fault: Callable[[str, int], Fault | None] = lambda file, n: None
    ) -> None:
        self.folder = folder
        self.ranges = ranges
        self.fault = fault
        self.requests: Counter[str] = Counter()
        """Answered or not, by file."""
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        owner = self

        class Handler(_Handler):
            served = owner

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self.url = f"http://127.0.0.1:{self._server.server_port}/some/folder"

    def __enter__(self) -> "HttpFolder":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.stopped.is_set():
            return
        self.stopped.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    served: HttpFolder

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        file = self.path.removeprefix("/some/folder/")
        with self.served.lock:
            self.served.requests[file] += 1
            fault = self.served.fault(file, self.served.requests.total())
        try:
            data = (self.served.folder / file).read_bytes()
        except OSError:
            return self._send(404, b"")
        if fault in ("503", "403"):
            return self._send(int(fault), b"no")
        if fault == "delay":
            self.served.stopped.wait(PATIENCE)
        if fault in ("drop", "delay"):
            return self._hang_up()
        status, headers = 200, {}
        if self.served.ranges and (range_ := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))):
            first, last = int(range_[1]), int(range_[2])
            if first >= len(data):
                return self._send(416, b"")
            headers["Content-Range"] = f"bytes {first}-{min(last, len(data) - 1)}/{len(data)}"
            status, data = 206, data[first : last + 1]
        if fault == "flip" and data:
            data = data[:-1] + bytes([data[-1] ^ 1])
        return self._send(status, data, headers, fault=fault)

    def _send(
        self, status: int, data: bytes, headers: dict[str, str] | None = None, fault: Fault | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if fault == "cut":
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            return self._hang_up()
        self.wfile.write(data)
        return None

    def _hang_up(self) -> None:
        self.close_connection = True


def faults_at_random(seed: int, share: float, faults: tuple[Fault, ...] = FAULTS) -> Callable[[str, int], Fault | None]:
    """A fraction of the requests goes wrong, each in a way of its own.

    The index is spared `flip`: it is what everything else is verified by, and its hash the fingerprint.
    """
    generator = random.Random(seed)

    def fault(file: str, number: int) -> Fault | None:
        if generator.random() >= share:
            return None
        chosen = generator.choice(faults)
        return None if file == "index.json" and chosen == "flip" else chosen

    return fault
