"""A real sshd on a port of the loopback, with keys of its own, that ends with its test."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from launcher.machine.processes import descendants
from tests.waiting import PATIENCE, wait_until

CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
PrintMotd no
"""


class Sshd:
    """A machine, as far as ssh can tell: its processes are those below its sshd."""

    def __init__(self, folder: Path) -> None:
        """Start it; skips the test where that cannot be done here."""
        daemon = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
        if daemon is None or shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
            pytest.skip("OpenSSH's server or client is not installed (apt install openssh-server)")
        folder.mkdir()
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # what Debian's sshd separates its privileges in
        for name in ("host_key", "user_key"):
            keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(keygen, check=True, stdin=subprocess.DEVNULL)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        (folder / "sshd_config").write_text(CONFIG.format(port=self.port, folder=folder))
        self.log = folder / "log"
        self.process = subprocess.Popen(
            [daemon, "-D", "-e", "-f", str(folder / "sshd_config")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.log.open("w"),
        )
        key = (folder / "host_key.pub").read_text().split()
        self.known_host = f"[127.0.0.1]:{self.port} {key[0]} {key[1]}"
        self.identity = folder / "user_key"
        self._wait()

    def _wait(self) -> None:
        def answers() -> bool:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE):
                return True
            return False

        wait_until(lambda: answers() or self.process.poll() is not None, "sshd")
        if self.process.poll() is not None:
            self.end()
            pytest.skip(f"sshd does not run here: {self.log.read_text().strip()}")

    def processes(self) -> list[int]:
        """Everything below it."""
        return descendants(self.process.pid)

    def send(self, number: signal.Signals) -> None:
        """A signal to everything on this machine: power loss, or a machine that hangs."""
        for pid in [self.process.pid, *self.processes()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def end(self) -> None:
        """End it and all that is below it."""
        self.send(signal.SIGKILL)
        self.process.wait()
