"""Jobs from submission to their end, on a cluster of this machine whose pods are processes."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.clusters.kubernetes.cluster import KubernetesCluster
from launcher.clusters.kubernetes.section import Volume
from launcher.jobs import End, JobState, Training
from tests.launcher.clusters.kubernetes.fake_cluster import FakeCluster
from tests.launcher.conftest import Zeromt
from tests.waiting import wait_until
from trainer.runs.status import read_status

PRETENDER = """#!/bin/bash
# A python that does what PLAN says, a word for each start of its pod, or of all: an exit code, or `wait` for
# SIGTERM and then 75.
trap 'exit 75' TERM  # first: who sees the file of a start may send the signal
mkdir -p starts
number=${ZEROMT_ATTEMPT:-$(ls starts | grep -c "^$JOB_COMPLETION_INDEX-")}
touch "starts/$JOB_COMPLETION_INDEX-$number"
plan=($PLAN)
if [[ ${plan[number]} != wait ]]; then exit "${plan[number]}"; fi
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


def is_running(site: KubernetesCluster, job: str) -> bool:
    return site.query(job) == JobState(id=job, state="RUNNING")


def end_of(cluster: FakeCluster, job: str, **fields: Any) -> JobState:
    """What is said of a job when it has ended."""
    wait_until(lambda: cluster.is_over(job), "the end")
    found = KubernetesCluster(**fields).query(job)
    assert found is not None
    return found


ONCE_MORE = {"workload": "jobset", "max_failures": 1}


@pytest.mark.parametrize(
    ("plan", "fields", "end", "restarts"),
    [
        ("0", {}, End.FINISHED, (0, 0)),
        ("75 75 0", {}, End.FINISHED, (2, 0)),
        ("2", {}, End.REFUSED, (0, 0)),
        ("1", {}, End.FAILED, (0, 1)),
        ("1 75 0", ONCE_MORE, End.FINISHED, (2, 1)),
        ("1 1 0", ONCE_MORE, End.FAILED, (1, 2)),
    ],
)
def test_ends_of_a_jobset(
    cluster: FakeCluster,
    workplace: Path,
    plan: str,
    fields: dict[str, object],
    end: End,
    restarts: tuple[int, int],
) -> None:
    """Restarts, and how many of the failures were held against it."""
    cluster.environment["PLAN"] = plan
    site = pretending(workplace, **{"workload": "jobset", **fields})
    job = submit(site, workplace, is_checked=True)
    assert end_of(cluster, job, workload="jobset").end is end, cluster.output()
    status = cluster.job(job)["status"]
    assert (status["restarts"], status["counted"]) == restarts
    if end is End.FINISHED:
        assert len(cluster.starts()) == 2 * (1 + restarts[0]), "all pods start together"


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
        wait_until(functools.partial(is_running, site, job), "the state")
        cluster.lose(cluster.pods(1)[0]) if is_lost else cluster.preempt(cluster.pods(1)[0])
        cluster.preempt(cluster.pods(0)[0])
    assert end_of(cluster, job).end is End.FINISHED
    assert sorted(cluster.starts()) == [(0, 0), (0, 75), (0, 75), (1, 0), (1, 75), (1, 137)]
    assert "failed" not in cluster.job(job)["status"]


@pytest.mark.parametrize(
    ("harm", "code", "workload"),
    [
        ("preempt", 75, "job"),
        *(
            pytest.param(*more, marks=pytest.mark.slow)  # of a JobSet, the pods of a pretender come back above
            for more in (("preempt", 75, "jobset"), ("lose", 137, "job"), ("lose", 137, "jobset"))
        ),
    ],
)
def test_two_nodes_come_back_and_finish(
    cluster: FakeCluster, zeromt: Zeromt, workplace: Path, profile: str, harm: str, code: int, workload: str
) -> None:
    """The real `launch node` in each pod, with torchrun and ranks of a pretending trainer."""
    cluster.environment["FAKE"] = "wait,wait"
    given = ["--set", f"workload={workload}", "--nodes", "2", "--nproc", "1", "--fresh"]
    done = zeromt("launch", "kubernetes", "debug", "--site", profile, *given)
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    run = workplace / "volume" / "runs" / "debug"
    assert f"zeromt: submitted job {job}\n" in done.stderr
    text = (workplace / "runs" / "debug" / "logs" / f"kubernetes-{job}.yaml").read_text()
    kinds = ["Service", "Job"] if workload == "job" else ["JobSet"]
    assert [document["kind"] for document in yaml.safe_load_all(text)] == kinds
    wait_until(lambda: (run / "pid-0").exists() and (run / "pid-1").exists(), "the ranks")
    assert json.loads(zeromt("status", "runs/debug", "--json").stdout)["state"] in ("starting", "running")
    cluster.environment["FAKE"] = "finish,finish"
    (cluster.preempt if harm == "preempt" else cluster.lose)(cluster.pods(1)[0])
    assert end_of(cluster, job, namespace="mt", workload=workload).end is End.FINISHED, cluster.output()
    assert sorted(cluster.starts()) == [(0, 0), (0, 75), (1, 0), (1, code)], cluster.output()
    assert not list(run.parent.glob("debug.*")), "--fresh holds for the first start alone"
    status = read_status(run / "status.json")
    assert status is not None
    assert (status.state, status.job_id) == ("finished", job)
    assert f"job          {job} COMPLETED, finished" in zeromt("status", "runs/debug").stdout
    assert "zeromt] rank 0: rank 0 of 2 says hello" in zeromt("log", "runs/debug").stdout
    assert ("a node is lost: node 1" in cluster.output()) == (harm == "lose")


def test_what_the_cluster_warns_of_is_said_once(
    cluster: FakeCluster, zeromt: Zeromt, workplace: Path, profile: str
) -> None:
    said = 'would violate PodSecurity "restricted:latest": allowPrivilegeEscalation != false'
    python = f"python={pretending(workplace).python}"
    done = zeromt("launch", "kubernetes", "debug", "--site", profile, "--set", python, "--nproc", "1", WARN=said)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"zeromt: kubectl: Warning: {said}\n") == 1, done.stderr


@pytest.mark.parametrize("workload", ["job", "jobset"])
def test_stop_suspends_and_nothing_comes_back(
    cluster: FakeCluster, zeromt: Zeromt, workplace: Path, profile: str, workload: str
) -> None:
    cluster.environment["PLAN"] = "wait wait"
    site = pretending(workplace, namespace="mt", workload=workload)
    given = ["--set", f"python={site.python}", "--set", f"workload={workload}", "--nodes", "2", "--nproc", "1"]
    done = zeromt("launch", "kubernetes", "debug", "--site", profile, *given)
    volume = workplace / "volume"
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    wait_until(lambda: have_started(volume, 2))
    options, said = ([], "stopped") if workload == "job" else (["--no-wait"], "asked to save and stop")
    stopped = zeromt("stop", "runs/debug", *options)
    assert (stopped.returncode, stopped.stderr) == (0, f"zeromt: job {job}: {said}\n")
    wait_until(lambda: (state := site.query(job)) is not None and state.end is not None, "the end")
    assert sorted(cluster.starts()) == [(0, 75), (1, 75)]
    assert site.query(job) == JobState(id=job, state="SUSPENDED", end=End.STOPPED)
    assert f"job          {job} SUSPENDED, stopped" in zeromt("status", "runs/debug").stdout
    refused = zeromt("stop", "runs/debug")
    assert refused.returncode == 2
    assert "is not running" in refused.stderr
