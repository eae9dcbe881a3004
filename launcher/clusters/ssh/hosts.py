"""The hosts of a job that ssh starts: `[user@]host [slots=N] [port=P]`, one a line, `#` begins a comment."""

import re
from dataclasses import dataclass
from pathlib import Path

from configs import UserError

_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_LIMITS = {"slots": 65_536, "port": 65_535}
_ALLOWED = "allowed is [user@]host [slots=N] [port=P]"
_MOST_BYTES = 1 << 20


@dataclass(kw_only=True, slots=True, frozen=True)
class Host:
    """A machine named in the file."""

    name: str
    """Name or address; only letters, digits, `.`, `_` and `-`."""
    user: str | None = None
    slots: int | None = None
    """Processes on it."""
    port: int | None = None
    """Port of its sshd."""

    @property
    def label(self) -> str:
        """The name that prefixes its lines and identifies it in messages."""
        return self.name if self.port is None else f"{self.name}:{self.port}"


def read_hosts(path: Path) -> list[Host]:
    """Read a file of hosts.

    Raises:
        UserError: it cannot be read, names no host or one twice, or has an invalid line; one line for each error.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        text = content.decode("ascii")
    except OSError as error:
        raise UserError(f"--hosts: {str(path)!r}: {error.strerror}; give a file of hosts") from error
    except UnicodeDecodeError as error:
        raise UserError(f"--hosts: {str(path)!r}: byte {error.start} is not ASCII; {_ALLOWED} a line") from error
    if len(content) > _MOST_BYTES:
        raise UserError(f"--hosts: {str(path)!r}: more than {_MOST_BYTES} bytes; {_ALLOWED} a line")
    hosts: dict[tuple[str, int | None], Host] = {}
    problems = []
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        host = _parse(words)
        if isinstance(host, str):
            problems.append(f"--hosts: {str(path)!r} line {number}: {host}; {_ALLOWED}")
        elif (host.name, host.port) in hosts:
            problems.append(f"--hosts: {str(path)!r} line {number}: {host.label!r} again; name each host once")
        else:
            hosts[host.name, host.port] = host
    if problems:
        raise UserError("\n".join(problems))
    if not hosts:
        raise UserError(f"--hosts: {str(path)!r} names no host; {_ALLOWED}, one a line")
    return list(hosts.values())


def _parse(words: list[str]) -> Host | str:
    """The host that a line names, or what is wrong with it."""
    user, at, name = words[0].rpartition("@")
    if at and not _USER.fullmatch(user):
        return f"{user!r} is no user's name"
    if not _NAME.fullmatch(name):
        return f"{name!r} is no host's name or IPv4 address"
    numbers: dict[str, int] = {}
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key not in _LIMITS or key in numbers:
            return f"{word!r}"
        if not (value.isascii() and value.isdigit() and len(value) <= 5 and 1 <= int(value) <= _LIMITS[key]):
            return f"{word!r} is not a number from 1 to {_LIMITS[key]}"
        numbers[key] = int(value)
    return Host(name=name, user=user or None, slots=numbers.get("slots"), port=numbers.get("port"))
