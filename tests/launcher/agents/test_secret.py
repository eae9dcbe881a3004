"""The secret of a job's nodes, and the messages that count with it alone."""

import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from configs import UserError
from launcher.agents.peers import listen
from launcher.agents.secret import SECRET, Board, new_secret, secret_file, shared_secret, tag

START = "job-1"


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET, raising=False)


def never() -> bool:
    return False


def at_once() -> bool:
    return True


def test_node_0_leaves_it_to_nobody_but_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str | None] = []
    other = threading.Thread(
        target=lambda: found.append(shared_secret(tmp_path, START, is_first=False, has_ended=never))
    )
    other.start()
    secret = shared_secret(tmp_path, START, is_first=True, has_ended=never)
    other.join(60)
    assert found == [secret]
    assert secret_file(tmp_path, START).stat().st_mode & 0o777 == 0o600
    assert shared_secret(tmp_path, START, is_first=True, has_ended=never) == secret, "a later start"
    assert shared_secret(tmp_path, "job-2", is_first=False, has_ended=at_once) is None
    monkeypatch.setenv(SECRET, "of the environment")
    assert shared_secret(tmp_path, START, is_first=False, has_ended=never) == "of the environment"


@pytest.mark.parametrize("planted", ["link", "FIFO", "readable", "of another user"])
def test_one_that_others_know_or_have_made_is_refused(
    tmp_path: Path, planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, elsewhere = secret_file(tmp_path, START), tmp_path / "elsewhere"
    if planted == "link":
        elsewhere.write_text(new_secret())
        elsewhere.chmod(0o600)
        path.symlink_to(elsewhere)
    elif planted == "FIFO":
        os.mkfifo(path, 0o600)
    else:
        path.write_text(new_secret())
        path.chmod(0o644 if planted == "readable" else 0o600)
    if planted == "of another user":
        monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    for is_first in (True, False):
        with pytest.raises(UserError, match=f"same random text as {SECRET}"):
            shared_secret(tmp_path, START, is_first=is_first, has_ended=never)


def test_messages_of_strangers_do_not_count() -> None:
    store: Any = HashStore()
    board, secret = Board(store, "secret", START), new_secret()
    assert board.read("stop") is None
    board.put("stop", "a \udcff line")
    assert Board(store, "secret", START).read("stop") == "a ? line"
    for other in (Board(store, secret, START), Board(store, "secret", "job-2")):
        assert other.read("stop") is None
        other.put("stop", "a stranger says so")
        assert board.read("stop") is None
    board.put("beat/0", "1")
    for value in (store.get("beat/0"), b"", b"-", b"\x80\x04N.", b"0" * 64, b"\xff" * 99):
        store.set("stop", value)
        assert board.read("stop") is None, "a message of another name, or none"
    assert tag("secret", START) != tag(secret, START) != tag(secret, "job-2")


@pytest.mark.parametrize(("host", "address"), [("localhost", "127.0.0.1"), ("127.0.0.1", "127.0.0.1")])
def test_the_store_listens_where_the_others_look_for_it(host: str, address: str, port: int) -> None:
    with socket.socket(fileno=listen(host, port)) as server:
        assert server.getsockname() == (address, port)
        with pytest.raises(OSError, match="in use"):
            listen(host, port)
