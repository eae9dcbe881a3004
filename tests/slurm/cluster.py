"""A real SLURM cluster on one machine: munged, slurmctld and slurmds as processes, on loopback, in one folder.

Each daemon has its own UTS and mount namespace, so that a node has its own name, and an /etc/hosts that knows all of
them. All nodes share 127.0.0.1 and its ports. CPUs and memory are pretended; there is no accounting. Seen with SLURM
22.05; needs root, or user namespaces without it.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.waiting import PATIENCE

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "sinfo", "unshare")
CLIENT_SECONDS = 60
_PR_SET_PDEATHSIG = 1
_ADDRESS = "127.0.0.1"
_TO_HOST = 'hostname "$1"; mount --bind "$2" /etc/hosts; cd "$3"; shift 3; exec "$@"'


def search_path() -> str:
    """PATH with the folders of daemons, which a user's often lacks."""
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def missing_programs() -> list[str]:
    """What would have to be installed first."""
    return [name for name in PROGRAMS if shutil.which(name, path=search_path()) is None]


def install() -> None:
    """Install Debian's packages where that is possible: as root, with apt."""
    if not missing_programs() or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", "slurm-wlm", "munge"]):
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                ["apt-get", "-qq", *arguments], env=environment, capture_output=True, timeout=300, check=False
            )


class Cluster:
    """The daemons, the way to ask them, and ways to disturb them."""

    def __init__(self, folder: Path, *, nodes: int = 2, port: int = 17_000, cpus: int = 8) -> None:
        """Describe one; `start` begins it.

        Args:
            folder: for all state; absolute and short, for there are unix sockets in it.
            nodes: n1, n2, ...
            port: of slurmctld; node i has port + i.
            cpus: of every node, by appearance.
        """
        self.folder = folder
        self.nodes = [f"n{i + 1}" for i in range(nodes)]
        self._port = port
        self._cpus = cpus
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._namespaces: dict[str, str] = {}
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_", "SQUEUE_", "SINFO_"))}
        self.environment = {**kept, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": search_path()}

    def start(self) -> None:
        """Begin the daemons and wait until the nodes are idle."""
        for name in ("munge", "state", "spool", "run", "log"):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)  # munged insists
        self._configure()
        m = self.folder / "munge"
        self._begin(
            "munged",
            "ctl",
            *("munged", "--foreground", f"--key-file={m}/key", f"--socket={m}/socket", f"--seed-file={m}/seed"),
            *(f"--pid-file={self.folder}/run/munged.pid", f"--log-file={self.folder}/log/munged.log"),
        )
        self._wait(10, (m / "socket").exists)
        self.start_controller()
        for node in self.nodes:
            (self.folder / "spool" / node).mkdir()
            self._begin(node, node, "slurmd", "-D", "-f", str(self.folder / "slurm.conf"), "-N", node)
        self._wait(60, lambda: all(map(self.is_ready, self.nodes)))
        self._note_namespaces()

    def stop(self) -> None:
        """End the daemons and all that jobs left."""
        self._end("slurmctld", signal.SIGTERM)
        for node in self.nodes:
            self.fail(node)
        self._end("munged", signal.SIGTERM)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_controller(self) -> None:
        """Begin slurmctld."""
        self._begin("slurmctld", "ctl", "slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))
        self._wait(30, lambda: self.ask("scontrol", "ping", check=False).returncode == 0)

    def fail(self, node: str) -> None:
        """Power a node off: SIGKILL to its slurmd and everything on it. SLURM notices after some 20 s."""
        while pids := self._pids_on(node):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
        self._end(node, signal.SIGKILL)

    def boot(self, node: str) -> None:
        """Begin a node again after `fail`."""
        self.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=power failure", check=False)
        self._begin(node, node, "slurmd", "-D", "-f", str(self.folder / "slurm.conf"), "-N", node)
        self._wait(60, lambda: self.is_ready(node))
        self._note_namespaces()

    def is_ready(self, node: str) -> bool:
        """Whether it answers and can take jobs."""
        state = self.ask("sinfo", "-h", "-n", node, "-o", "%T", check=False).stdout.strip()
        return state in ("idle", "mixed", "allocated")

    def ask(self, *command: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run one of SLURM's commands."""
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=CLIENT_SECONDS, check=check
        )

    def job(self, number: str) -> Mapping[str, str]:
        """What `scontrol show job` says of a job; of an array, of its first task."""
        shown = self.ask("scontrol", "--oneliner", "show", "job", number).stdout.splitlines()[0]
        return dict(pair.split("=", 1) for pair in shown.split() if "=" in pair)

    def wait_for_job(self, number: str, states: Sequence[str], seconds: float = 300) -> Mapping[str, str]:
        """Wait until a job is in one of these states, and return what is known of it."""
        self._wait(seconds, lambda: self.job(number)["JobState"] in states, lambda: str(self.job(number)))
        return self.job(number)

    # --- processes

    def _on_host(self, name: str, command: Sequence[str]) -> list[str]:
        """A command in namespaces of its own; whoever is not root gets there as root of a user namespace."""
        before, after = ["unshare", "--mount", "--uts"], []
        if os.geteuid() != 0:
            before[1:1] = ["--user", "--map-root-user"]
            after = ["unshare", "--user", f"--map-user={os.geteuid()}", f"--map-group={os.getegid()}"]
        return [*before, "sh", "-ec", _TO_HOST, "sh", name, str(self.folder / "hosts"), "/", *after, *command]

    def _begin(self, name: str, host: str, *command: str) -> None:
        clean = {"PATH": search_path(), "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8"}
        with (self.folder / "log" / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                self._on_host(host, command),
                env=clean,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )

    def _end(self, name: str, number: signal.Signals) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is None:
            return
        daemon.send_signal(number)
        try:
            daemon.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def _note_namespaces(self) -> None:
        """Remember the UTS namespaces of the nodes, by which to find their processes later."""
        for node in self.nodes:
            if node in self._daemons:
                with contextlib.suppress(OSError):
                    self._namespaces[node] = str(Path(f"/proc/{self._daemons[node].pid}/ns/uts").readlink())

    def _pids_on(self, node: str) -> list[int]:
        pids, namespace = [], self._namespaces.get(node)
        for entry in Path("/proc").glob("[0-9]*") if namespace else ():
            with contextlib.suppress(OSError):
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and str((entry / "ns" / "uts").readlink()) == namespace:
                    pids.append(int(entry.name))
        return pids

    def _wait(self, seconds: float, condition: Callable[[], bool], about: Callable[[], str] = str) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() >= end:
                raise TimeoutError(f"not seen within {seconds} s {about()}\n{self.log_tail()}")
            time.sleep(0.2)

    def log_tail(self) -> str:
        """The last lines of every daemon, for a test that fails."""
        lines = []
        for path in sorted((self.folder / "log").glob("*.out")):
            lines += [f"{path.name}: {line}" for line in path.read_text(errors="replace").splitlines()[-4:]]
        return "\n".join(lines)

    def _configure(self) -> None:
        folder = self.folder
        names = " ".join(["ctl", "login", *self.nodes])
        (folder / "hosts").write_text(f"{Path('/etc/hosts').read_text()}\n{_ADDRESS} {names}\n")
        key = folder / "munge" / "key"
        key.touch(0o600)
        key.write_bytes(os.urandom(1024))
        # Not used, but read; and the plugin that is found by itself would ask systemd for a scope.
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n" if self._is_old() else "CgroupPlugin=disabled\n")
        user = self.ask("id", "-un").stdout.strip()
        lines = CONFIGURATION.format(folder=folder, user=user, port=self._port, address=_ADDRESS).splitlines()
        lines += [
            f"NodeName={node} NodeHostname={node} NodeAddr={_ADDRESS} Port={self._port + 1 + i} CPUs={self._cpus}"
            for i, node in enumerate(self.nodes)
        ]
        lines.append("PartitionName=main Default=YES Nodes=ALL DefaultTime=10 MaxTime=INFINITE")
        (folder / "slurm.conf").write_text("\n".join(lines) + "\n")

    def _is_old(self) -> bool:
        return int(self.ask("slurmd", "-V").stdout.split()[1].split(".")[0]) < 24


def _end_with_parent() -> None:
    """Let the kernel end a daemon when the tests are killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


CONFIGURATION = """\
ClusterName=tests
SlurmctldHost=ctl({address})
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
# Listen on the address that the hostname resolves to, not on all of them
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/munge
CredType=cred/munge
# cred_expire is also how long a requeued job has to wait (default: 120 s)
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/%n.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/log/jobs.txt
MpiDefault=none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
# Tests should not have to wait
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=2,bf_interval=2
KillWait=30
SlurmdTimeout=10
MessageTimeout=5
ReturnToService=2
MinJobAge=86400
"""
