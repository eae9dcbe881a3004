"""`zeromt` for a page's blocks, forked from a process that has imported torch: a page gives many short commands."""

import json
import shlex
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.forked import Forked

_CLIENT = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    server.sendall(json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    code, out, err = json.loads(b"".join(iter(lambda: server.recv(65536), b"")))
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""


@contextmanager
def serving(forked: Forked, folder: Path) -> Iterator[str]:
    """The line of a shell's script that makes `zeromt "$@"`, while the context lasts; for commands without a stdin.

    Args:
        forked: what the commands are forked from, one after another.
        folder: a new one, for the socket and its client.
    """
    folder.mkdir()
    (folder / "client.py").write_text(_CLIENT)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen(8)
        thread = threading.Thread(target=_serve, args=(forked, listener), daemon=True)
        thread.start()
        client = [sys.executable, "-I", "-S", str(folder / "client.py"), str(folder / "socket")]
        yield f'exec {shlex.join(client)} "$@"\n'
        listener.shutdown(socket.SHUT_RDWR)  # ends `accept`
        thread.join()


def _serve(forked: Forked, listener: socket.socket) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        with client, client.makefile("rb") as asked:
            arguments, cwd, variables = json.load(asked)
            client.sendall(json.dumps(_make(forked, arguments, Path(cwd), variables)).encode())


def _make(forked: Forked, arguments: list[str], cwd: Path, variables: Mapping[str, str]) -> tuple[int, str, str]:
    try:
        done = forked.zeromt(*arguments, cwd=cwd, surroundings=variables)
    except (OSError, pytest.fail.Exception) as error:
        return 1, "", str(error)
    return done.code, done.out, done.err
