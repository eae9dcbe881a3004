"""Jobs that follow others: a merge after its parts, and a Job that waits for another, by the API server."""

import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from launcher.clusters.kubernetes.cluster import KubernetesCluster
from launcher.jobs import End, Training
from tests.launcher.clusters.kubernetes.fake_cluster import FakeCluster
from tests.launcher.clusters.kubernetes.test_jobs import end_of, is_running, pretending, submit
from tests.launcher.conftest import Zeromt
from tests.waiting import wait_until


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


@pytest.fixture
def corpus(workplace: Path) -> str:
    """Name of a configuration, here and on the volume."""
    lines = [f"{n} words of line {n * n % 97}" for n in range(400)]
    for side in ("source", "target"):
        (workplace / "volume" / side).write_text("\n".join(lines) + "\n")
    text = (
        "prepare:\n  output: prepared\n  train: {source: [source], target: [target]}\n  tokenizer: {vocab_size: 120}\n"
    )
    for folder in (workplace, workplace / "volume"):
        (folder / "my.yaml").write_text(text)
    return "my.yaml"


def test_parts_and_their_merge_in_one_jobset(
    cluster: FakeCluster, zeromt: Zeromt, workplace: Path, profile: str, corpus: str
) -> None:
    """No pod waits, and none asks the API server."""
    given = ["--set", "workload=jobset", "--set", "service_account=null", "--array", "2"]
    done = zeromt("launch", "kubernetes", "--site", profile, *given, "--", "prepare", corpus)
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    assert end_of(cluster, job, namespace="mt", workload="jobset").end is End.FINISHED, cluster.output()
    assert cluster.starts() == [(0, 0), (1, 0), (0, 0)]
    assert (workplace / "volume" / "prepared" / "index.json").exists()


def test_parts_and_their_merge(
    cluster: FakeCluster, api: None, zeromt: Zeromt, workplace: Path, profile: str, corpus: str
) -> None:
    """Of a real corpus, by the real `zeromt prepare`: the merge begins when all parts are there."""
    done = zeromt("launch", "kubernetes", "--site", profile, "--array", "2", "--", "prepare", corpus)
    assert done.returncode == 0, done.stderr
    parts, merge = done.stdout.split()
    site = KubernetesCluster(namespace="mt")
    states = []
    while not cluster.is_over(merge):
        states.append(site.query(merge))
    assert [end_of(cluster, job, namespace="mt").end for job in (parts, merge)] == [End.FINISHED] * 2, cluster.output()
    assert sorted(cluster.starts()) == [(0, 0), (0, 0), (1, 0)]
    assert "waits for the job before it" in [state.reason for state in states if state is not None]
    assert (workplace / "volume" / "prepared" / "index.json").exists()
    assert f"waiting for job {parts}" in cluster.output()


@pytest.mark.parametrize("what", ["failed", pytest.param("unknown", marks=pytest.mark.slow), "forbidden", "stopped"])
def test_a_job_does_not_follow_one_that_has_not_succeeded(
    cluster: FakeCluster, api: None, workplace: Path, what: str
) -> None:
    cluster.environment["PLAN"] = "wait" if what == "stopped" else "1"
    site = pretending(workplace, service_account="zeromt")
    first = submit(site, workplace)
    if what == "stopped":
        wait_until(lambda: is_running(site, first))
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
