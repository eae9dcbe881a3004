"""`zeromt launch ssh` from end to end: two sshd on the loopback, and ranks of a pretending trainer."""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.launcher.clusters.local.test_launch import run_folder, wait_for
from tests.launcher.clusters.local.test_moments import left
from tests.launcher.clusters.ssh.sshd import Sshd
from tests.launcher.conftest import ROOT, command_line, environment
from tests.waiting import PATIENCE, wait_until


@dataclass(frozen=True)
class Cluster:
    """Two machines with one file system."""

    machines: list[Sshd]
    workplace: Path
    python: Path
    ssh_config: Path

    def hosts(self, *ports: int) -> str:
        path = self.workplace / "hosts"
        path.write_text("".join(f"127.0.0.1 slots=1 port={port}\n" for port in ports))
        return str(path)

    def launch(self, fake: str, *arguments: str, ports: tuple[int, ...] = ()) -> "subprocess.Popen[str]":
        """Start `zeromt launch ssh debug` with one rank on each host; `fake` says what they do, by rank."""
        options = ["--hosts", self.hosts(*(ports or [m.port for m in self.machines]))]
        options += ["--python", str(self.python), "--ssh-config", str(self.ssh_config)]
        options += ["--environment", f"FAKE={fake}", "--connect-timeout", "60", *arguments]
        return subprocess.Popen(
            command_line(["launch", "ssh", "debug", *options]),
            cwd=self.workplace,
            env=environment(PYTHONPATH=str(ROOT)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def left(self) -> list[int]:
        """Processes of jobs on any host, whoever their parents are by now, and of connections."""
        sessions = (machine.processes() for machine in self.machines if machine.process.poll() is None)
        return left(str(self.workplace / "fake")) + [pid for pids in sessions for pid in pids]


@pytest.fixture
def cluster(workplace: Path, tmp_path: Path) -> Iterator[Cluster]:
    machines: list[Sshd] = []
    with contextlib.ExitStack() as stack:
        for name in ("sshd-1", "sshd-2"):
            machines.append(Sshd(tmp_path / name))
            stack.callback(machines[-1].end)
        (tmp_path / "known_hosts").write_text("".join(f"{m.known_host}\n" for m in machines))
        keys = "".join(f"IdentityFile {m.identity}\n" for m in machines)
        ssh_config = tmp_path / "ssh_config"
        ssh_config.write_text(f"{keys}IdentitiesOnly yes\nUserKnownHostsFile {tmp_path / 'known_hosts'}\n")
        python = tmp_path / "python"
        paths = f"{workplace / 'fake'}:{ROOT}"
        python.write_text(
            f"#!/bin/sh\nexport PYTHONPATH='{paths}' CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1\n"
            f'exec {sys.executable} "$@"\n'
        )
        python.chmod(0o755)
        made = Cluster(machines=machines, workplace=workplace, python=python, ssh_config=ssh_config)
        stack.callback(kill_all, made.left)
        yield made


def kill_all(find: Callable[[], list[int]]) -> None:
    for pid in find():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def finish(child: "subprocess.Popen[str]") -> tuple[int, str, str]:
    try:
        out, err = child.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        out, err = child.communicate()
        pytest.fail(f"did not end\n{out}\n{err}")
    return child.returncode, out, err


def test_lines_by_host_and_nothing_in_a_shell(cluster: Cluster, workplace: Path) -> None:
    """The run's folder has a name that a shell would do much with; the first attempt fails, the second ends well."""
    output = "runs/a b;touch canary;$(touch canary)`touch canary`'\"|&\\"
    code, out, err = finish(cluster.launch("once,finish", f"output={output}", "seed=3"))
    assert code == 0, err
    assert err.count("restart 1 of 3 since step 0") == 2
    first, second = (f"[127.0.0.1:{machine.port}]" for machine in cluster.machines)
    hosts, lines = zip(*(line.split(" ", 1) for line in sorted(out.splitlines())), strict=True)
    assert set(hosts) == {first, second}
    assert set(lines) == {f"rank {rank}: rank {rank} of 2 says hello" for rank in (0, 1)}
    assert re.match(rf"zeromt: 2 hosts: {first[1:-1]}, {second[1:-1]}; they meet at 127\.0\.0\.1:2\d{{4}}\n", err)
    assert "\x1b" not in out + err
    assert (workplace / output / "debug" / "status.json").exists()
    assert list(workplace.rglob("canary*")) == []
    wait_until(lambda: cluster.left() == [])


PLUGIN = """
import os

from configs.components import Schedule, component

with open("loaded", "a") as file:
    print(os.environ.get("RANK"), __file__, "ZEROMT_PLUGINS" in os.environ, file=file)


@component("schedule", "halves")
class Halves(Schedule):
    def factor(self, update, last):
        return 0.5**update
"""


def test_plugins_are_those_that_the_launcher_has_read(cluster: Cluster, workplace: Path) -> None:
    (workplace / "halves.py").write_text(PLUGIN)
    code, _, err = finish(cluster.launch("finish,finish", "schedule=halves", "--plugins", "halves.py"))
    assert code == 0, err
    loaded = [line.split() for line in (workplace / "loaded").read_text().splitlines()]
    assert {file for _, file, _ in loaded} == {str(workplace / "halves.py")}
    assert sorted((rank, told) for rank, _, told in loaded) == [
        ("0", "True"), ("1", "True"), ("None", "False"), ("None", "True"), ("None", "True"),
    ]  # fmt: skip
    assert len(list((workplace / "runs" / "debug" / "plugins").iterdir())) == 1


@pytest.mark.parametrize(
    ("sent", "received"), [("SIGUSR1", "SIGUSR1"), pytest.param("SIGINT", "SIGTERM", marks=pytest.mark.slow)]
)
def test_signals_reach_all_ranks_once(cluster: Cluster, workplace: Path, sent: str, received: str) -> None:
    child = cluster.launch("wait,wait")
    folder = run_folder(workplace)
    wait_for(folder / "pid-0", folder / "pid-1")
    for _ in range(2):
        child.send_signal(signal.Signals[sent])
        wait_for(folder / "signals-0", folder / "signals-1")
    code, _, err = finish(child)
    assert code == 75, err
    assert [(folder / f"signals-{rank}").read_text() for rank in (0, 1)] == [received] * 2
    assert f"zeromt: {sent}: asking the ranks to save and stop; waiting for them" in err.splitlines()
    wait_until(lambda: cluster.left() == [])


def test_killed_launcher_leaves_nothing(cluster: Cluster, workplace: Path) -> None:
    """The ranks save first."""
    child = cluster.launch("wait,wait")
    folder = run_folder(workplace)
    wait_for(folder / "pid-0", folder / "pid-1")
    child.kill()
    child.communicate()
    wait_until(lambda: cluster.left() == [])
    assert [(folder / f"signals-{rank}").read_text() for rank in (0, 1)] == ["SIGTERM"] * 2
    assert '"state": "stopped"' in (folder / "status.json").read_text()


def test_host_that_cannot_be_reached(cluster: Cluster, workplace: Path) -> None:
    port = cluster.machines[1].port
    cluster.machines[1].end()
    code, out, err = finish(cluster.launch("finish,finish"))
    assert (code, out) == (1, "")
    assert err == (
        f"zeromt: host 127.0.0.1:{port} cannot be reached: ssh: connect to host 127.0.0.1 port {port}: "
        "Connection refused\n"
    )
    assert not run_folder(workplace).exists(), "the other host has begun"
    wait_until(lambda: cluster.left() == [])


def test_hosts_that_let_nobody_in_or_have_no_python(cluster: Cluster) -> None:
    for machine in cluster.machines[:1]:
        (machine.identity.with_suffix(".pub")).write_text("")
    code, _, err = finish(cluster.launch("finish,finish", "--python", "/no/such/python"))
    assert code == 1
    one, other = err.splitlines()
    assert re.search(r"host \S+ cannot be reached: .*Permission denied \(publickey\)", one)
    assert re.search(r"host \S+ cannot be reached: .*/no/such/python: not found|No such file", other)


def test_banner_that_begins_like_ready(cluster: Cluster, tmp_path: Path) -> None:
    """Startup files print it before the command runs, here one that cannot."""
    login = tmp_path / "login"
    login.write_text("#!/bin/sh\necho 'Ready. Authorised use only.'; echo 'R$*'; echo Only you; exec /no/such/python\n")
    login.chmod(0o755)
    code, out, err = finish(cluster.launch("finish,finish", "--python", str(login)))
    assert (code, out) == (1, "")
    assert len(re.findall(r"host \S+ cannot be reached: .*/no/such/python", err)) == 2, err


def test_banner_before_a_job_that_runs(cluster: Cluster) -> None:
    before = "#!/bin/sh\nprintf 'Ready.\\nOnly authorised use. '\n"
    cluster.python.write_text(before + cluster.python.read_text())
    code, out, err = finish(cluster.launch("finish,finish"))
    assert code == 0, err
    assert "authorised" not in out + err
    assert out.count("says hello") == 2


def test_refusal_of_a_node(cluster: Cluster, tmp_path: Path) -> None:
    code, _, err = finish(cluster.launch("finish,finish", "--directory", str(tmp_path / "none")))
    assert code == 2, err
    assert "zeromt: error: --directory: " in err
    assert "No such file or directory; give a folder that every host has" in err


def test_failure_names_the_rank_first(cluster: Cluster) -> None:
    code, _, err = finish(cluster.launch("wait,fail", "--max-restarts", "0"))
    assert code == 1, err
    said = [line.partition("] ")[2] for line in err.splitlines() if "] zeromt: " in line]
    assert re.match(r"zeromt: rank 1 on \S+ failed first: ended with exit code 1", said[1]), said
    wait_until(lambda: cluster.left() == [])


@pytest.mark.parametrize("lost", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_lost_host_ends_the_job(cluster: Cluster, workplace: Path, lost: int) -> None:
    child = cluster.launch("forever,forever", "--node-timeout", "6", "--join-timeout", "15")
    folder = run_folder(workplace)
    wait_for(folder / "pid-0", folder / "pid-1")
    cluster.machines[lost].send(signal.SIGKILL)
    code, _, err = finish(child)
    assert code == 1, err
    assert f"zeromt: host 127.0.0.1:{cluster.machines[lost].port} is lost: " in err
    wait_until(lambda: cluster.left() == [])


@pytest.mark.slow
def test_host_that_hangs(cluster: Cluster, workplace: Path) -> None:
    """All its processes are stopped: nothing is refused, nothing answers. When it wakes up, it ends too."""
    child = cluster.launch("forever,forever", "--node-timeout", "6", "--join-timeout", "15")
    folder = run_folder(workplace)
    wait_for(folder / "pid-0", folder / "pid-1")
    cluster.machines[1].send(signal.SIGSTOP)
    code, _, err = finish(child)
    assert code == 1, err
    port = cluster.machines[1].port
    assert re.search(rf"host 127\.0\.0\.1:{port} is lost: Timeout, server 127\.0\.0\.1 not responding", err)
    cluster.machines[1].send(signal.SIGCONT)
    wait_until(lambda: cluster.left() == [])


@pytest.mark.parametrize("moments", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_sigterm_at_any_moment_leaves_nothing(cluster: Cluster, workplace: Path, moments: int) -> None:
    """From before the connections to after the end. The seed is the moment's number."""
    for number in range(moments):
        child = cluster.launch("wait,wait", f"name=moment{number}")
        time.sleep(random.Random(number).uniform(0, 14))
        child.send_signal(signal.SIGTERM)
        code, _, err = finish(child)
        # Before Python has run its first lines, a signal ends it as it ends every process.
        assert code == 75 or (code == -signal.SIGTERM and not err), (number, code, err)
        wait_until(lambda: cluster.left() == [])


def test_without_ssh(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("nowhere\n")
    done = subprocess.run(
        command_line(["launch", "ssh", "debug", "--hosts", "hosts"]),
        cwd=tmp_path,
        env=environment(PYTHONPATH=str(ROOT), PATH=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (
        2,
        "zeromt: error: ssh: cannot be run: No such file or directory; install OpenSSH's client, or put it on PATH\n",
    )


def test_hosts_by_a_profile(cluster: Cluster) -> None:
    """All that the command line would say; what it says goes before."""
    hosts = cluster.hosts(*(machine.port for machine in cluster.machines))
    (cluster.workplace / "lab.yaml").write_text(
        f"scheduler: ssh\nssh:\n  hosts: {hosts}\n  python: {cluster.python}\n  ssh_config: {cluster.ssh_config}\n"
        "  environment: {FAKE: 'fail,fail'}\n  connect_timeout: 60\n"
    )
    done = subprocess.run(
        command_line(["launch", "ssh", "debug", "--site", "lab.yaml", "--environment", "FAKE=finish,finish"]),
        cwd=cluster.workplace,
        env=environment(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert "2 hosts: " in done.stderr


def test_no_hosts(cluster: Cluster) -> None:
    for arguments in ([], ["--set", "connect_timeout=5"]):
        done = subprocess.run(
            command_line(["launch", "ssh", "debug", *arguments]),
            cwd=cluster.workplace,
            env=environment(PYTHONPATH=str(ROOT)),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert (done.returncode, done.stderr.partition(";")[0]) == (2, "zeromt: error: --hosts: none given")
