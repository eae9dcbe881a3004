"""What a pod decides before and after its run, how pods meet, and what is refused before there is one."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from launcher.agents.peers import LOST_NODE, NOT_HERE
from launcher.clusters.kubernetes import pod, rendezvous
from launcher.clusters.kubernetes.pod import _capped, decide_begin, decide_end, exit_code
from launcher.jobs import End, Ending
from tests.launcher.conftest import Zeromt
from tests.waiting import PATIENCE, wait_until
from trainer.runs.status import Status


def status(state: str, **more: Any) -> Status:
    return Status(**{"state": state, "error": None, "job_id": "job", "launch_id": "job-1-1", **more})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, None),
        (status("running"), None),
        (status("failed"), None),
        (status("stopped", stop_reason="SIGTERM"), None),
        (status("finished"), End.FINISHED),
        (status("refused"), End.REFUSED),
        (status("stopped", stop_reason="stop file"), End.STOPPED),
        (status("failed", refused_job="job", refusal="x"), End.REFUSED),
        (status("finished", job_id="before"), None),  # of another Job: `launch node` says what there is to say
        (status("finished", job_id=None), None),
    ],
)
def test_begin(found: Status | None, expected: End | None) -> None:
    ending = decide_begin(found, "job")
    assert (ending and ending.end) is expected


@pytest.mark.parametrize(
    ("found", "code", "was_stopped", "stuck", "expected", "pod"),
    [
        ({"state": "finished"}, 0, False, "", End.FINISHED, 0),
        ({"state": "refused"}, 2, False, "", End.REFUSED, 2),
        ({"state": "stopped", "stop_reason": "SIGTERM"}, 75, True, "", End.INTERRUPTED, 75),
        ({"state": "stopped", "stop_reason": "stop file"}, 75, False, "", End.STOPPED, 0),
        (None, 75, True, "", End.INTERRUPTED, 75),
        (None, 1, True, "", End.INTERRUPTED, 75),  # it could not save in time
        ({"state": "failed", "error": f"{LOST_NODE}node 1 is gone"}, 1, False, "", End.LOST_NODE, 75),
        ({"state": "running"}, 1, False, f"x\nzeromt: {LOST_NODE}node 0 is gone\n", End.LOST_NODE, 75),
        ({"state": "failed", "error": "rank 0: ValueError: x"}, 1, False, "zeromt: rank 0 is stuck\n", End.FAILED, 1),
        ({"state": "finished", "launch_id": "job-0-1"}, 1, False, "", End.FAILED, 1),  # an earlier start's word
    ],
)
def test_end(
    found: dict[str, str] | None, code: int, was_stopped: bool, stuck: str, expected: End, pod: int, tmp_path: Path
) -> None:
    if found is not None:
        (tmp_path / "status.json").write_text(json.dumps({"launch_id": "job-1-1", "job_id": "job", **found}))
    (tmp_path / "stuck.log").write_text(stuck)
    ending = decide_end(tmp_path, code, "job-1", was_stopped=was_stopped)
    assert ending.end is expected
    assert exit_code(ending.end) == pod


def test_starts_without_progress_are_counted_by_the_first_pod(tmp_path: Path) -> None:
    lost = Ending(end=End.LOST_NODE, why="lost")
    ends = [_capped(tmp_path, "job", 2, lost, 0) for _ in range(3)]
    assert [ending.end for ending in ends] == [End.LOST_NODE, End.LOST_NODE, End.FAILED]
    assert ends[-1].why == "lost; not started again: no new checkpoint since step 0, 2 times"
    assert _capped(tmp_path, "job", 2, lost, 1) == lost
    assert _capped(tmp_path, "another", 2, lost, 0).end is End.LOST_NODE
    refused = Ending(end=End.REFUSED, why="x")
    assert _capped(tmp_path, "job", 0, refused, 0) == refused


def start(folder: Path, monkeypatch: pytest.MonkeyPatch, *, index: int, **variables: str) -> tuple[int, str]:
    """A pod that nobody joins: its exit code, and what it leaves as its message."""
    given = {"JOB_COMPLETION_INDEX": str(index), "ZEROMT_JOB_ID": "job", "ZEROMT_SECRET": "x" * 64, **variables}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    words = ["node", "--message", str(folder / "message"), "--max-requeues", "1", "--join-timeout", "0.5"]
    order = ["debug", "--nnodes", "2", "--rendezvous", "no.such.host.invalid:29500", "--job-id", "job"]
    code = pod.main([*words, "--", *order, "--", f"output={folder}"])
    return code, (folder / "message").read_text()


def test_what_was_given_up_is_not_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JobSet starts all pods again if another than the first ended before it."""
    (tmp_path / "debug").mkdir()
    lost = Ending(end=End.LOST_NODE, why="lost")
    codes = []
    for _ in range(3):
        codes.append(start(tmp_path, monkeypatch, index=0)[0])
        _capped(tmp_path / "debug", "job", 1, lost, 0)
    assert codes == [75, 75, 1]
    assert (tmp_path / "message").read_text() == ("failed: not started again: no new checkpoint since step 0, 1 times")


def test_pods_of_a_jobset_that_find_no_machine_are_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often as it takes: they do not count among starts without a new checkpoint."""

    def launch_node(*_: object, **__: object) -> int:
        (tmp_path / "debug").mkdir(exist_ok=True)
        (tmp_path / "debug" / "stuck.log").write_text(f"zeromt: {LOST_NODE}node 1 {NOT_HERE} 1 s\n")
        return 1

    monkeypatch.setattr(pod, "launch_node", launch_node)
    assert [start(tmp_path, monkeypatch, index=0, ZEROMT_ATTEMPT=str(n))[0] for n in range(4)] == [75] * 4


def test_a_pod_of_a_jobset_waits_for_the_name_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the cluster may not know yet; `launch node` would take it for a mistake."""
    code, message = start(tmp_path, monkeypatch, index=1, ZEROMT_ATTEMPT="0")
    assert (code, message) == (
        75,
        "lost node: pod 0 has no address, no.such.host.invalid is not known; to be started again",
    )


@pytest.mark.parametrize(
    ("launch_id", "expected"),
    [
        (None, "job-0"),
        ("job-1-2", "job-0"),
        ("job-00-2", "job-0"),
        ("other-0-1", "job-0"),
        ("job-0-2", "job-0.1"),
        ("job-0.9-1", "job-0.10"),
    ],
)
def test_a_jobset_that_is_resumed_has_starts_of_its_own(
    launch_id: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller need not count a resumption; what the start before it left is not the new one's."""
    given = []

    def launch_node(*_: object, **arguments: object) -> int:
        given.append(arguments["job_id"])
        return 75

    monkeypatch.setattr(pod, "launch_node", launch_node)
    (tmp_path / "debug").mkdir()
    written = {"state": "stopped", "stop_reason": "SIGTERM", "job_id": "job", "launch_id": launch_id}
    (tmp_path / "debug" / "status.json").write_text(json.dumps(written))
    _, message = start(tmp_path, monkeypatch, index=0, ZEROMT_ATTEMPT="0")
    assert message == "interrupted: stopped before the ranks had begun; to be started again"
    assert given == [expected]


# --- the rendezvous


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as found:
        yield found


def never() -> bool:
    return False


def ask(
    pool: ThreadPoolExecutor,
    port: int,
    index: int,
    *,
    job: str = "job",
    secret: str = "secret",
    seconds: float = PATIENCE,
) -> "Future[str]":
    address = ("::1" if index == 2 and socket.has_dualstack_ipv6() else "127.0.0.1", port)
    return pool.submit(rendezvous.ask, job, secret, index=index, address=address, seconds=seconds, is_stopped=never)


def host(pool: ThreadPoolExecutor, port: int, num_pods: int, seconds: float = PATIENCE) -> "Future[str]":
    return pool.submit(
        rendezvous.host, "job", "secret", num_pods=num_pods, port=port, seconds=seconds, is_stopped=never
    )


def connected(port: int) -> socket.socket:
    """A connection to the first pod, as soon as it listens."""

    def connect() -> socket.socket | None:
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        return None

    found = wait_until(connect, "the first pod")
    assert found is not None
    return found


def test_all_pods_of_a_start_get_its_name(pool: ThreadPoolExecutor, port: int) -> None:
    others = [ask(pool, port, index) for index in (1, 2)]
    time.sleep(0.3)
    first = host(pool, port, 3)
    (start,) = {first.result(), *(other.result() for other in others)}
    assert start.startswith("job-")
    late = ask(pool, port, 1)  # a pod that is back before the others have ended waits for their next start
    time.sleep(0.5)
    assert not late.done()
    again = host(pool, port, 2).result()
    assert late.result() == again != start


def answer(port: int, index: int) -> socket.socket:
    """A connection of a pod that has said who it is."""
    one = connected(port)
    greeting = one.recv(100).decode().strip()
    mark = rendezvous._mark("secret", "pod", greeting, "job", str(index), "number")
    one.sendall(f"job {index} number {mark}\n".encode())
    return one


def test_a_pod_that_is_replaced_while_it_waits(pool: ThreadPoolExecutor, port: int) -> None:
    first = host(pool, port, 3)
    with answer(port, 1):
        time.sleep(0.3)
    second = ask(pool, port, 2)
    time.sleep(0.5)
    assert not first.done(), "pod 1 is gone"
    assert ask(pool, port, 1).result() == second.result() == first.result()


MARK = rendezvous._mark("secret", "pod", "of another connection", "job", "1", "number").encode()


@pytest.mark.parametrize(
    "words",
    [
        b"another 1\n",
        b"job 1\n",
        b"job 1 number " + MARK + b"\n",
        b"job\n",
        b"\xff\n",
        b"GET / HTTP/1.1\n",
        b"",
        b"1" * 999,
    ],
)
def test_strangers_are_not_counted(pool: ThreadPoolExecutor, port: int, words: bytes) -> None:
    first = host(pool, port, 2)
    with connected(port) as stranger, stranger.makefile("rb") as said:
        assert len(said.readline()) == 33
        stranger.sendall(words)
        with contextlib.suppress(OSError):  # the host may have hung up on it already
            stranger.shutdown(socket.SHUT_WR)
            assert said.read() == b""
    assert ask(pool, port, 1).result() == first.result()


def test_who_says_nothing_keeps_nobody_waiting(pool: ThreadPoolExecutor, port: int) -> None:
    first = host(pool, port, 2)
    strangers = [connected(port) for _ in range(100)]
    strangers[-1].sendall(b"j")
    assert ask(pool, port, 1).result() == first.result()
    for one in strangers:
        one.close()


def test_a_pod_follows_nobody_who_does_not_know_the_secret(pool: ThreadPoolExecutor, port: int) -> None:
    first, second = host(pool, port, 2, seconds=2.0), ask(pool, port, 1, secret="guessed", seconds=3.0)
    for one in (first, second):
        with pytest.raises(rendezvous.MissingError):
            one.result()


def test_who_does_not_come_is_named(pool: ThreadPoolExecutor, port: int) -> None:
    first, second = host(pool, port, 4, seconds=1.0), ask(pool, port, 2, seconds=1.5)
    with pytest.raises(rendezvous.MissingError, match=r"^pod 1, 3 of 4 did not come within 1 s$"):
        first.result()
    with pytest.raises(rendezvous.MissingError, match=r"^pod 0 (did not answer at (127|::1)|waits for others)"):
        second.result()


def test_a_request_to_stop_ends_the_waiting(pool: ThreadPoolExecutor, port: int) -> None:
    stop = threading.Event()
    options: dict[str, Any] = {"seconds": 10 * PATIENCE, "is_stopped": stop.is_set}
    first = pool.submit(rendezvous.host, "job", "secret", num_pods=3, port=port, **options)
    second = pool.submit(rendezvous.ask, "job", "secret", index=1, address=("127.0.0.1", port), **options)
    stop.set()
    for waiting in (first, second):
        with pytest.raises(rendezvous.StoppedError):
            waiting.result(timeout=PATIENCE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "image: none given; allowed is a container image that has zeromt"),
        (["--site", "kubernetes", "--nodes", "1-2"], "--nodes: '1-2'; allowed is a number"),
        (["--site", "kubernetes", "--nodes", "3", "--nproc", "1"], "--nodes: 3 with 1 processes each is more than"),
        (["--site", "kubernetes", "--image", "a;b"], "image: 'a;b'; allowed is text that matches"),
        (["--site", "cpu"], "--site: cpu: scheduler: slurm; use `zeromt launch slurm`"),
        (["--site", "kubernetes", "--nproc", "1"], "kubectl: no such command; use a machine that has it"),
    ],
)
def test_bad_input(zeromt: Zeromt, workplace: Path, arguments: list[str], message: str) -> None:
    gpus = ["--gpus-per-node", "0"] if "cpu" not in arguments else []
    done = zeromt("launch", "kubernetes", "debug", *gpus, *arguments, PATH="/nowhere")
    assert done.returncode == 2
    assert done.stderr.startswith(f"zeromt: error: {message}"), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (workplace / "runs").exists()


def test_dry_run_needs_neither_kubectl_nor_data(zeromt: Zeromt, tmp_path: Path) -> None:
    arguments = ("launch", "kubernetes", "debug", "--site", "kubernetes", "--nproc", "1", "--dry-run")
    done = zeromt(*arguments, PATH="/nowhere")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("apiVersion: v1\nkind: Service\n")
    assert not (tmp_path / "runs").exists()
