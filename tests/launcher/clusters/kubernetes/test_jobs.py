"""Jobs from submission to their end, on a cluster of this machine whose pods are processes."""

import functools
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from launcher.clusters.kubernetes.cluster import KubernetesCluster
from launcher.clusters.kubernetes.section import Volume
from launcher.jobs import End, JobState, Training
from tests.launcher.clusters.kubernetes.conftest import wait_until
from tests.launcher.clusters.kubernetes.fake_cluster import FakeCluster
from tests.launcher.conftest import Zeromt
from trainer.runs.status import read_status

pytestmark = pytest.mark.alone

PRETENDER = """#!/bin/bash
# A python that does what PLAN says, a word for each start of its pod: an exit code, or `wait` for SIGTERM and then 75.
mkdir -p starts
number=$(ls starts | grep -c "^$JOB_COMPLETION_INDEX-")
touch "starts/$JOB_COMPLETION_INDEX-$number"
plan=($PLAN)
if [[ ${plan[number]} != wait ]]; then exit "${plan[number]}"; fi
trap 'exit 75' TERM
while sleep 0.05; do :; done
"""


def pretending(workplace: Path, **fields: object) -> KubernetesCluster:
    """A cluster whose image has the pretender for its python."""
    python = workplace / "pretender"
    python.write_text(PRETENDER)
    python.chmod(0o755)
    section: dict[str, object] = {
        "image": "zeromt:1",
        "python": str(python),
        "volumes": [Volume(mount=str(workplace), claim="work")],
        "gpus_per_node": 0,
        **fields,
    }
    return KubernetesCluster(**section)  # type: ignore[arg-type]


def submit(site: KubernetesCluster, workplace: Path, *, is_checked: bool = False) -> str:
    job = Training(
        config="debug",
        overrides=(),
        folder=str(workplace),
        run="runs/debug",
        logs=str(workplace / "runs/debug/logs"),
        name="debug",
        nodes="2",
        nproc=1,
    )
    text = site.render(job)
    if is_checked:
        site.check(text)
    return site.submit(text, after=None, needs_success=False)


def have_started(folder: Path, number: int) -> bool:
    """Whether there were so many pods, those of before included."""
    return len(list((folder / "starts").glob("*"))) == number


def end_of(cluster: FakeCluster, job: str, namespace: str | None = None) -> JobState:
    """What is said of a job when it has ended."""
    wait_until(lambda: cluster.is_over(job), "the end")
    found = KubernetesCluster(namespace=namespace).query(job)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("plan", "fields", "end", "starts", "failures"),
    [
        ("0", {}, End.FINISHED, [(0, 0), (1, 0)], 0),
        ("75 75 0", {}, End.FINISHED, [(0, 0), (0, 75), (0, 75), (1, 0), (1, 75), (1, 75)], 0),
        ("2", {}, End.REFUSED, [(0, 2), (1, 2)], 0),
        ("75 2", {}, End.REFUSED, [(0, 2), (0, 75), (1, 2), (1, 75)], 0),
        ("1", {}, End.FAILED, [(0, 1), (1, 1)], 1),
        ("1 0", {"max_failures": 2}, End.FINISHED, [(0, 0), (0, 1), (1, 0), (1, 1)], 2),
    ],
)
def test_ends_by_exit_code(
    cluster: FakeCluster,
    workplace: Path,
    plan: str,
    fields: dict[str, object],
    end: End,
    starts: list[tuple[int, int]],
    failures: int,
) -> None:
    cluster.environment["PLAN"] = plan
    site = pretending(workplace, **fields)
    job = submit(site, workplace, is_checked=end is End.FINISHED)
    assert end_of(cluster, job).end is end
    if end is not End.FINISHED:  # whichever came first ended the Job: the other may have been asked to stop
        assert {code for _, code in cluster.starts()} >= {code for _, code in starts} - {75}
        assert len(cluster.starts()) <= len(starts)
    else:
        assert sorted(cluster.starts(), key=str) == sorted(starts, key=str)
    assert cluster.job(job)["status"].get("failed", 0) == failures


def test_a_lost_node_and_a_preemption_do_not_count(cluster: FakeCluster, workplace: Path) -> None:
    cluster.environment["PLAN"] = "wait wait 0"
    site = pretending(workplace)
    job = submit(site, workplace)
    for number, is_lost in ((2, True), (4, False)):
        wait_until(functools.partial(have_started, workplace, number))
        assert site.query(job) == JobState(id=job, state="RUNNING")
        cluster.lose(cluster.pods(1)[0]) if is_lost else cluster.preempt(cluster.pods(1)[0])
        cluster.preempt(cluster.pods(0)[0])
    assert end_of(cluster, job).end is End.FINISHED
    assert sorted(cluster.starts()) == [(0, 0), (0, 75), (0, 75), (1, 0), (1, 75), (1, 137)]
    assert "failed" not in cluster.job(job)["status"]


PROFILE = """
scheduler: kubernetes
kubernetes:
  namespace: mt
  image: zeromt:1
  python: {python}
  directory: {folder}
  volumes: [{{mount: {folder}, claim: work}}]
  gpus_per_node: 0
  service_account: zeromt
  port: {port}
  node_timeout: 6
  start_timeout: 20
"""


@pytest.fixture
def profile(workplace: Path) -> str:
    """Its name; the pods have this Python, and a folder that the launch does not see."""
    volume = workplace / "volume"
    shutil.copytree(workplace / "data", volume / "data")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = 20_000 + free.getsockname()[1] % 20_000
    file = workplace / "site.yaml"
    file.write_text(PROFILE.format(python=sys.executable, folder=volume, port=port))
    return file.name


@pytest.mark.parametrize(
    ("harm", "codes"), [("preempt", [(1, 75)]), pytest.param("lose", [(1, 137)], marks=pytest.mark.slow)]
)
def test_two_nodes_come_back_and_finish(
    cluster: FakeCluster, zeromt: Zeromt, workplace: Path, profile: str, harm: str, codes: list[tuple[int, int]]
) -> None:
    """The real `launch node` in each pod, with torchrun and ranks of a pretending trainer."""
    cluster.environment["FAKE"] = "wait,wait"
    done = zeromt("launch", "kubernetes", "debug", "--site", profile, "--nodes", "2", "--nproc", "1", "--fresh")
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    run = workplace / "volume" / "runs" / "debug"
    assert f"zeromt: submitted job {job}\n" in done.stderr
    text = (workplace / "runs" / "debug" / "logs" / f"kubernetes-{job}.yaml").read_text()
    assert [document["kind"] for document in yaml.safe_load_all(text)] == ["Service", "Job"]
    wait_until(lambda: (run / "pid-0").exists() and (run / "pid-1").exists(), "the ranks")
    assert json.loads(zeromt("status", "runs/debug", "--json").stdout)["state"] in ("starting", "running")
    cluster.environment["FAKE"] = "finish,finish"
    (cluster.preempt if harm == "preempt" else cluster.lose)(cluster.pods(1)[0])
    assert end_of(cluster, job, "mt").end is End.FINISHED, cluster.output()
    assert sorted(cluster.starts()) == [(0, 0), (0, 75), (1, 0), *codes], cluster.output()
    assert not list(run.parent.glob("debug.*")), "--fresh holds for the first start alone"
    status = read_status(run / "status.json")
    assert status is not None
    assert (status.state, status.job_id) == ("finished", job)
    assert f"job          {job} COMPLETED, finished" in zeromt("status", "runs/debug").stdout
    assert "zeromt] rank 0: rank 0 of 2 says hello" in zeromt("log", "runs/debug").stdout
    assert ("a node is lost: node 1" in cluster.output()) == (harm == "lose")


def test_stop_suspends_and_nothing_comes_back(
    cluster: FakeCluster, zeromt: Zeromt, workplace: Path, profile: str
) -> None:
    cluster.environment["PLAN"] = "wait wait"
    site = pretending(workplace, namespace="mt")
    python = f"python={site.python}"
    done = zeromt("launch", "kubernetes", "debug", "--site", profile, "--set", python, "--nodes", "2", "--nproc", "1")
    volume = workplace / "volume"
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    wait_until(lambda: have_started(volume, 2))
    stopped = zeromt("stop", "runs/debug")
    assert (stopped.returncode, stopped.stderr) == (0, f"zeromt: job {job}: stopped\n")
    assert sorted(cluster.starts()) == [(0, 75), (1, 75)]
    assert site.query(job) == JobState(id=job, state="SUSPENDED", end=End.STOPPED)
    assert f"job          {job} SUSPENDED, stopped" in zeromt("status", "runs/debug").stdout
    refused = zeromt("stop", "runs/debug")
    assert refused.returncode == 2
    assert "is not running" in refused.stderr


# --- one job after another


@pytest.fixture
def api(cluster: FakeCluster) -> Iterator[None]:
    """The API server as pods reach it by their service account: TLS, a token, and the state of Jobs."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    cluster.account.mkdir()
    for name, text in (("token", "secret"), ("namespace", "mt")):
        (cluster.account / name).write_text(text)
    files = ["-keyout", str(cluster.account / "key"), "-out", str(cluster.account / "ca.crt")]
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", *kind, *files, *subject]
    subprocess.run(command, check=True, capture_output=True)

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            folder, _, name = self.path.rpartition("/")
            assert folder == "/apis/batch/v1/namespaces/mt/jobs"
            is_known = self.headers["Authorization"] == "Bearer secret"
            try:
                text = json.dumps(cluster.job(name)).encode()
            except KeyError:
                text = b""
            self.send_response(403 if not is_known else 200 if text else 404)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cluster.account / "ca.crt", cluster.account / "key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cluster.environment |= {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.server_port)}
    yield
    server.shutdown()
    server.server_close()


def test_parts_and_their_merge(cluster: FakeCluster, api: None, zeromt: Zeromt, workplace: Path, profile: str) -> None:
    """Of a real corpus, by the real `zeromt prepare`: the merge begins when all parts are there."""
    lines = [f"{n} words of line {n * n % 97}" for n in range(400)]
    for side in ("source", "target"):
        (workplace / "volume" / side).write_text("\n".join(lines) + "\n")
    text = (
        "prepare:\n  output: prepared\n  train: {source: [source], target: [target]}\n  tokenizer: {vocab_size: 120}\n"
    )
    for folder in (workplace, workplace / "volume"):
        (folder / "my.yaml").write_text(text)
    done = zeromt("launch", "kubernetes", "my.yaml", "--site", profile, "--prepare", "2")
    assert done.returncode == 0, done.stderr
    parts, merge = done.stdout.split()
    site = KubernetesCluster(namespace="mt")
    states = []
    while not cluster.is_over(merge):
        states.append(site.query(merge))
    assert [end_of(cluster, job, "mt").end for job in (parts, merge)] == [End.FINISHED] * 2, cluster.output()
    assert sorted(cluster.starts()) == [(0, 0), (0, 0), (1, 0)]
    assert "waits for the job before it" in [state.reason for state in states if state is not None]
    assert (workplace / "volume" / "prepared" / "index.json").exists()
    assert f"waiting for job {parts}" in cluster.output()


@pytest.mark.parametrize("what", ["failed", "unknown", "forbidden", "stopped"])
def test_a_job_does_not_follow_one_that_has_not_succeeded(
    cluster: FakeCluster, api: None, workplace: Path, what: str
) -> None:
    cluster.environment["PLAN"] = "wait" if what == "stopped" else "1"
    site = pretending(workplace, service_account="zeromt")
    first = submit(site, workplace)
    if what == "stopped":
        wait_until(lambda: site.query(first) == JobState(id=first, state="RUNNING"))
        site.stop(first)
    assert end_of(cluster, first).end is (End.STOPPED if what == "stopped" else End.FAILED)
    if what == "forbidden":
        (cluster.account / "token").write_text("another")
    cluster.environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    text = site.render(
        Training(
            config="debug",
            overrides=(),
            folder=str(workplace),
            run="runs/debug",
            logs="/",
            name="debug",
            nodes="1",
            nproc=1,
            after="nobody" if what == "unknown" else first,
        )
    ).replace(site.python, sys.executable)
    second = site.submit(text, after=None, needs_success=False)
    assert end_of(cluster, second).end is End.REFUSED, cluster.output()
    said = {
        "failed": "it failed: Job has reached the specified backoff limit",
        "unknown": "error: job nobody, which must have succeeded: 404",
        "forbidden": "service_account may not read it (403",
        "stopped": "it was stopped",
    }
    assert said[what] in cluster.output()
