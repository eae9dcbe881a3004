"""What kubectl is asked, and what its answers mean."""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from launcher.clusters.kubernetes.cluster import KubernetesCluster
from launcher.clusters.kubernetes.kubectl import command, state_of
from launcher.jobs import End, JobState
from tests.launcher.clusters.kubernetes.test_manifest import BARE, training
from tests.waiting import PATIENCE


def condition(kind: str, **more: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": "True", **more}]}}


def pod(phase: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "status": {"phase": phase, **status}}


NO_ROOM = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes\n have room"}]
WAITING = [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]
STOPPED = [{"state": {"terminated": {"exitCode": 0, "message": "stopped: by `zeromt stop`"}}}]


@pytest.mark.parametrize(
    ("job", "pods", "state", "reason", "end"),
    [
        ({}, [], "PENDING", None, None),
        ({}, [pod("Pending", conditions=NO_ROOM)], "PENDING", "Unschedulable: 0/4 nodes have room", None),
        ({}, [pod("Pending", containerStatuses=WAITING)], "PENDING", "ImagePullBackOff", None),
        ({}, [pod("Pending"), pod("Running")], "RUNNING", None, None),
        ({"spec": {"suspend": True}}, [pod("Running")], "COMPLETING", None, None),
        ({"spec": {"suspend": True}}, [pod("Failed")], "SUSPENDED", None, End.STOPPED),
        (condition("FailureTarget"), [pod("Running")], "COMPLETING", None, None),
        (condition("Complete"), [], "COMPLETED", None, End.FINISHED),
        (condition("Complete"), [pod("Succeeded", containerStatuses=STOPPED)], "COMPLETED", None, End.STOPPED),
        (condition("Failed", reason="PodFailurePolicy"), [], "FAILED", None, End.REFUSED),
        (condition("Failed", reason="BackoffLimitExceeded"), [], "FAILED", None, End.FAILED),
        (condition("Completed"), [], "COMPLETED", None, End.FINISHED),
        (condition("Failed", reason="FailJobSetFailurePolicyAction"), [], "FAILED", None, End.REFUSED),
        (condition("Failed", reason="ReachedMaxRestarts"), [], "FAILED", None, End.FAILED),
        ({"status": {"conditions": [{"type": "Failed", "status": "False"}]}}, [], "PENDING", None, None),
        ({"status": {"conditions": None}}, [{"metadata": {}, "status": None}], "PENDING", None, None),
    ],
)
def test_states(
    job: dict[str, Any], pods: list[dict[str, Any]], state: str, reason: str | None, end: End | None
) -> None:
    found = state_of("job", job, pods)
    assert (found.state, found.reason, found.end) == (state, reason, end)


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ("echo 'Error from server (NotFound): jobs.batch \"job\" not found' >&2; exit 1", "GONE"),
        ("echo 'Unable to connect to the server' >&2; exit 1", "UNKNOWN"),
        ("echo '{'", "UNKNOWN"),
        ("echo '[]'", "UNKNOWN"),
        ("echo '{\"items\": []}'", "PENDING"),
    ],
)
def test_answers_that_are_none(answer: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kubectl").write_text(f"#!/bin/sh\n{answer}\n")
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    site = KubernetesCluster()
    found = site.query("job")
    assert found is not None
    assert found.state == state
    assert site.reach("job", ["status", "runs/x"]) is None


QUOTA = {"reason": "FailedCreate", "message": "Error creating: pods is forbidden:\n exceeded quota: gpus"}
OLDER = {"lastTimestamp": "2026-11-26T10:00:00Z", "reason": "FailedCreate", "message": "an older one"}


NEWER = {"lastTimestamp": "2026-11-26T11:00:00Z", **QUOTA}
MOUNT = {"eventTime": "2026-11-26T11:00:00Z", "lastTimestamp": None, "reason": "FailedMount", "message": "no server"}


@pytest.mark.parametrize(
    ("workload", "pods", "about", "events", "reason"),
    [
        ("job", [], "job", [OLDER, NEWER], "FailedCreate: Error creating: pods is forbidden: exceeded quota: gpus"),
        ("job", [pod("Pending")], "p", [MOUNT], "FailedMount: no server"),
        ("job", [], "job", [], None),
        ("job", [], "job", None, None),
        ("jobset", [], "job-node-0", [OLDER], "FailedCreate: an older one"),
        ("jobset", [], "job", [OLDER], "FailedCreate: an older one"),
    ],
)
def test_a_job_whose_pods_do_not_come_says_why(
    workload: Literal["job", "jobset"],
    pods: list[object],
    about: str,
    events: list[object] | None,
    reason: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A quota, a missing service account, a volume that is not mounted; without a word where one may not ask."""
    for name, items in (("pods", pods), ("events", events)):
        (tmp_path / name).write_text("Forbidden" if items is None else json.dumps({"items": items}))
    (tmp_path / "job").write_text('{"spec": {"replicatedJobs": [{"name": "node"}]}}')
    answers = f"{workload}\\ *) cat job ;; pods*) cat pods ;; events*.name={about},*) cat events ;;"
    (tmp_path / "kubectl").write_text(f'#!/bin/sh\ncd {tmp_path}; case "$2 $3" in {answers} esac\n')
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert KubernetesCluster(workload=workload).query("job") == JobState(id="job", state="PENDING", reason=reason)


@pytest.mark.parametrize(
    ("answer", "owned"),
    [
        ('{"metadata": {"annotations": {"zeromt/logs": "LOGS"}}}', True),
        ('{"metadata": {"annotations": {"zeromt/logs": "/home/me/runs/other/logs"}}}', False),
        ('{"metadata": {"annotations": {"zeromt/logs": 7}}}', False),
        ('{"metadata": {"name": "backup"}}', False),
        ("{", False),
    ],
)
def test_a_job_is_the_runs_if_kubernetes_says_so(
    answer: str, owned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run's folder may come from anywhere, and name any Job that the caller may suspend."""
    (tmp_path / "kubectl").write_text(f"#!/bin/sh\necho '{answer.replace('LOGS', str(tmp_path / 'logs'))}'\n")
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert KubernetesCluster().owns("job", tmp_path / "logs") is owned
    assert not KubernetesCluster().owns("--all", tmp_path / "logs")


@pytest.mark.parametrize("job", ["--all", "a b", "../x", "", "A", "$(x)", "a;b"])
def test_a_name_that_is_no_jobs_is_not_asked_for(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    site = KubernetesCluster()
    found = site.query(job)
    assert found is not None
    assert found.state == "UNKNOWN"
    assert site.reach(job, ["stop", "x"]) is None
    for ask in (site.stop, lambda job: site.log(job, Path(), follow=False)):
        with pytest.raises(Exception, match=r"^RUN: .* is no job of Kubernetes; name a run that was submitted there"):
            ask(job)


def test_where_kubectl_is_pointed() -> None:
    pointed = KubernetesCluster(context="a@b", namespace="mt")
    assert command(pointed, "get", "job") == ["kubectl", "--context=a@b", "--namespace=mt", "get", "job"]
    site = KubernetesCluster(namespace="mt")
    assert site.log("job", Path(), follow=True)[:4] == [
        "kubectl",
        "--namespace=mt",
        "logs",
        "--selector=batch.kubernetes.io/job-name=job",
    ]


def test_the_real_kubectl_knows_these_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as the API server, which is not there: a flag that it does not know, it says before."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    entry = {"name": "x", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
    config = {"apiVersion": "v1", "kind": "Config", "clusters": [entry], "contexts": [context], "current-context": "x"}
    (tmp_path / "config").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    site = KubernetesCluster(context="x", namespace="mt")
    asked: list[tuple[str, ...]] = []

    def run(words: Sequence[str], *, text: str | None = None, seconds: int = 0) -> str:
        asked.append(tuple(words))
        done = subprocess.run(words, input=text or "", capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 1
        assert re.search(r"127\.0\.0\.1:9\b.* refused", done.stderr), done.stderr
        if "pods" in words:
            return json.dumps({"items": [RUNNING] if any("patch" in before for before in asked) else []})
        return "job.batch/job" if "create" in words else "{}"

    for module in ("kubectl", "cluster"):
        monkeypatch.setattr(f"launcher.clusters.kubernetes.{module}.run", run)
    text = training(BARE)
    site.check(text)
    assert site.submit(text, after="other", needs_success=True) == "job"
    site.query("job")
    site.stop("job")
    for words in (site.log("job", tmp_path, follow=True), site.reach("job", ["status", "runs/x", "--json"])):
        assert words is not None
        run(words)
    assert [words[3] for words in asked] == [
        *("create", "apply", "create", "get", "get", "get", "patch", "get", "logs", "exec")
    ]


RUNNING = {
    "metadata": {"name": "job-0-x"},
    "status": {"phase": "Running"},
    "spec": {"containers": [{"command": ["/my python", "-P"]}]},
}


def test_a_command_inside_is_run_by_the_pods_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run's folder may come from anywhere: what its record names is not started."""
    site = KubernetesCluster(python="/harm")
    monkeypatch.setattr("launcher.clusters.kubernetes.cluster.find_pods", lambda *_: [RUNNING])
    words = site.reach("job", ["status", "runs/x"])
    assert words is not None
    assert words[1:] == [
        "exec",
        "job-0-x",
        "--container=zeromt",
        "--",
        "/my python",
        *("-P", "-m", "zeromt"),
        "status",
        "runs/x",
    ]
