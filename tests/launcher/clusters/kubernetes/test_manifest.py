"""Manifests: as they were reviewed (golden), valid, and never changed in meaning by what they hold."""

import dataclasses
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from configs import UserError
from configs.site import load_site
from launcher.clusters.kubernetes.cluster import KubernetesCluster
from launcher.clusters.kubernetes.manifest import choose_grace, following
from launcher.clusters.kubernetes.section import Toleration, Volume
from launcher.jobs import Array, Job, Training
from launcher.options.node import parse_launch_node
from tests.launcher.clusters.kubernetes.fake_kubectl import jobs_of
from tests.waiting import PATIENCE

JOBSET_SCHEMA = yaml.safe_load((Path(__file__).parent / "jobset.schema.yaml").read_text())
GOLDEN = Path(__file__).parent / "golden"
WORDS = (
    "a",
    "é😀",
    "--",
    "-x",
    "=",
    ": ",
    " #",
    "!!python/object:x",
    "1e3",
    "0o7",
    "1_0",
    "on",
    "null",
    "~",
    "2026-11-25",
    "---",
)
"""Which parsers may take for something else than text."""
OLDEST = "1.31"
"""In which podFailurePolicy is no beta any more."""

CONFIG = "configs/runs/my run.yaml"
OVERRIDES = ("seed=2", "name=a;b", "output=it's", "optimizer.lr=1e-3", "x=$(HOME) $$")
COMMON: dict[str, Any] = {
    "folder": "/home/me/my work",
    "run": "runs/my run",
    "logs": "/home/me/my work/runs/my run/logs",
    "name": "MT_en.de",
}
BARE = KubernetesCluster(
    image="zeromt:1", gpus_per_node=0, volumes=[Volume(mount="/home/me", claim="home")], service_account="zeromt"
)
FULL = KubernetesCluster(
    context="arn:aws:eks:eu:1:cluster/x",
    namespace="mt",
    image="registry.example.com:5000/mt/zeromt@sha256:0123456789abcdef",
    image_pull_policy="Always",
    pull_secrets=["registry", "other"],
    python="/opt/my env/bin/python",
    directory="/work/my dir",
    volumes=[
        Volume(mount="/work", claim="work", sub_path="me/zeromt"),
        Volume(mount="/data", nfs="files.example.com:/exports/mt data", read_only=True),
        Volume(mount="/scratch", host_path="/lustre/scratch"),
    ],
    gpus_per_node=8,
    gpu_resource="amd.com/gpu",
    cpus_per_node="96",
    memory="960Gi",
    resources={"rdma/hca": "1"},
    shared_memory="64Gi",
    environment={"NCCL_IB_HCA": "mlx5", "X": "a $(b) 'c'", "NUMBER": "1e3", "SWITCH": "on"},
    node_selector={"gpu": "h100", "on": "yes"},
    tolerations=[Toleration(key="gpu", value="true", effect="NoSchedule"), Toleration(key="spot")],
    priority_class="low",
    runtime_class="nvidia",
    service_account="zeromt",
    user=1000,
    group=2000,
    labels={"kueue.x-k8s.io/queue-name": "mt"},
    annotations={"k8s.v1.cni.cncf.io/networks": "ib0, ib1"},
    grace=1800,
    max_failures=2,
    interface="ib0",
)


TRAINING = Training(**COMMON, config=CONFIG, overrides=OVERRIDES, nodes="2", nproc=2)


def training(site: KubernetesCluster, **changes: Any) -> str:
    return site.render(dataclasses.replace(TRAINING, **changes))


def array(site: KubernetesCluster, **changes: Any) -> str:
    job = Array(**COMMON, words=("prepare", CONFIG, "--", *OVERRIDES), parts=4)
    return site.render(dataclasses.replace(job, **changes))


TOGETHER = dataclasses.replace(BARE, workload="jobset", service_account=None, max_failures=2)
VARIABLES = {"ZEROMT_PLUGINS": "a$b"}
MANIFESTS: dict[str, Callable[[], str]] = {
    "bare": lambda: training(BARE),
    "full": lambda: training(FULL, nodes="16", nproc=8, fresh=True, parent="runs/base@10", variables=VARIABLES),
    "after": lambda: training(BARE, nodes="1", after="mt-x7k2p"),
    "array": lambda: array(BARE),
    "jobset": lambda: training(TOGETHER),
    "jobset-array": lambda: array(TOGETHER),
    "merge": lambda: following(array(BARE, is_merge=True), "mt-x7k2p"),
}


@pytest.mark.parametrize(("words", "expected"), [("translate run", True), ("prepare x", False)])
def test_parts_that_compute_get_gpus(words: str, expected: bool) -> None:
    shown = array(dataclasses.replace(BARE, gpus_per_node=4), words=tuple(words.split()))
    (container,) = yaml.safe_load(shown)["spec"]["template"]["spec"]["containers"]
    limits = container["resources"].get("limits", {})
    assert limits.get(BARE.gpu_resource) == ("4" if expected else None)


@pytest.mark.parametrize("name", MANIFESTS)
def test_golden(name: str) -> None:
    path = GOLDEN / f"{name}.yaml"
    if "UPDATE_GOLDEN" in os.environ:
        path.write_text(MANIFESTS[name]())
    assert MANIFESTS[name]() == path.read_text(), "look at the change; UPDATE_GOLDEN=1 accepts it"


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
def test_golden_manifests_are_valid(version: str) -> None:
    files = sorted(GOLDEN.glob("*.yaml"))
    assert len(files) == len(MANIFESTS)
    kinds = []
    for file in files:
        for document in yaml.safe_load_all(file.read_text()):
            kinds.append(document["kind"])
            if kinds[-1] == "JobSet":
                jsonschema.validate(document["spec"], JOBSET_SCHEMA)
            for job in jobs_of(document):
                kubernetes_validate.validate(job, version, strict=True)
    assert kinds.count("Job") + kinds.count("JobSet") == len(files)
    document["spec"]["backofLimit"] = 1
    with pytest.raises(kubernetes_validate.ValidationError, match="backofLimit"):
        kubernetes_validate.validate(document, version, strict=True)


def test_kubectl_reads_what_python_reads(tmp_path: Path) -> None:
    """Go's YAML has other numbers than Python's; `kubectl kustomize` reads and writes without a cluster."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    expected = []
    # PyYAML cannot read a bare `=`, which kustomize writes.
    for number, text in enumerate(
        [
            *(make() for make in MANIFESTS.values()),
            *(training(BARE, overrides=(word,)) for word in WORDS if word != "="),
        ]
    ):
        documents = list(yaml.safe_load_all(text))
        for document in documents:
            metadata = document["metadata"]  # kustomize wants names, and each once
            metadata["name"] = f"{metadata.pop('generateName', 'service-')}{number}"
            expected.append(document)
            name = f'name: "{metadata["name"]}"'
        text = re.sub(r"^  generateName: .*$", f"  {name}", text, flags=re.M)
        text = re.sub(r"^  name: zeromt-mt-en-de$", f"  name: service-{number}", text, flags=re.M)
        (tmp_path / f"{number}.yaml").write_text(text)
    resources = "".join(f"- {path.name}\n" for path in sorted(tmp_path.glob("*.yaml")))
    (tmp_path / "kustomization.yaml").write_text(f"resources:\n{resources}")
    done = subprocess.run(["kubectl", "kustomize", str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    found = {(d["kind"], d["metadata"]["name"]): d for d in yaml.safe_load_all(done.stdout)}
    assert found == {(d["kind"], d["metadata"]["name"]): d for d in expected}


def test_what_the_issue_asks_for() -> None:
    service, job = yaml.safe_load_all(training(FULL, nodes="16", slowest_save=100.0))
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 16, 16)
    assert (service["spec"]["clusterIP"], service["metadata"]["name"]) == ("None", pod["subdomain"])
    assert service["spec"]["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
    assert pod["restartPolicy"] == "Never"
    assert [(r["action"], r.get("onExitCodes", {}).get("values")) for r in spec["podFailurePolicy"]["rules"]] == [
        ("FailJob", [2]),
        ("Ignore", [75]),
        ("Ignore", None),
    ]
    assert spec["podFailurePolicy"]["rules"][2]["onPodConditions"][0]["type"] == "DisruptionTarget"
    shm = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}
    assert shm in pod["volumes"]
    (container,) = pod["containers"]
    assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
    assert container["resources"]["limits"]["amd.com/gpu"] == "8"
    assert pod["imagePullSecrets"] == [{"name": "registry"}, {"name": "other"}]
    assert "gpu" not in str(yaml.safe_load(array(FULL))["spec"]["template"]["spec"]["containers"][0]["resources"])


def test_a_jobset_in_place_of_meeting_and_waiting() -> None:
    jobset = yaml.safe_load(training(TOGETHER))
    (node,) = jobset["spec"]["replicatedJobs"]
    pod = node["template"]["spec"]["template"]["spec"]
    command = pod["containers"][0]["command"]
    assert command[command.index("--rendezvous") + 1] == "$(ZEROMT_JOB_ID)-node-0-0.$(ZEROMT_JOB_ID):29500"
    labels = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in pod["containers"][0]["env"]}
    assert labels == {
        "ZEROMT_JOB_ID": "metadata.labels['jobset.sigs.k8s.io/jobset-name']",
        "ZEROMT_ATTEMPT": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']",
    }
    part, merge = yaml.safe_load(array(TOGETHER))["spec"]["replicatedJobs"]
    assert (part["template"]["spec"]["completions"], merge["template"]["spec"]["completions"]) == (4, 1)
    assert merge["dependsOn"] == [{"name": "part", "status": "Complete"}]
    assert "initContainers" not in merge["template"]["spec"]["template"]["spec"]
    assert array(TOGETHER, is_merge=True) == "", "it is there already"


def test_pods_of_a_jobset_have_names_that_the_cluster_takes() -> None:
    for text in (training(TOGETHER, name="x" * 40, nodes="99999"), array(TOGETHER, name="x" * 40, parts=99999)):
        jobset = yaml.safe_load(text)
        for member in jobset["spec"]["replicatedJobs"]:
            last = member["template"]["spec"]["completions"] - 1
            assert len(f"{jobset['metadata']['generateName']}abcde-{member['name']}-0-{last}-abcde") <= 63


def test_pods_of_a_restricted_namespace() -> None:
    """As the Pod Security Standard asks of the pod, and of each container, that which waits included."""
    manifest = following(training(dataclasses.replace(BARE, restricted=True, user=1000, group=100)), "mt-x7k2p")
    pod = list(yaml.safe_load_all(manifest))[-1]["spec"]["template"]["spec"]
    assert pod["securityContext"] == {
        "runAsUser": 1000,
        "runAsGroup": 100,
        "fsGroup": 100,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    for container in (*pod["containers"], *pod["initContainers"]):
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    for document in yaml.safe_load_all(manifest):
        kubernetes_validate.validate(document, OLDEST, strict=True)


def test_what_a_training_is_asked_for_arrives_at_every_node() -> None:
    *_, job = yaml.safe_load_all(training(BARE, nodes="3", max_restarts=7, fresh=True, parent="runs/my base@500"))
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    words = [word.replace("$(ZEROMT_JOB_ID)", "job").replace("$$", "$") for word in command]
    found = parse_launch_node(words[words.index("--") + 1 :])
    expected = {"nnodes": 3, "nproc": 2, "max_restarts": 7, "fresh": True, "parent": "runs/my base@500"}
    assert {name: found[name] for name in expected} == expected
    assert (found["config"], tuple(found["overrides"])) == (CONFIG, OVERRIDES)
    assert "--from" not in training(BARE)


def test_a_save_fits_into_the_grace() -> None:
    assert choose_grace(BARE, 0.0) == 300
    assert choose_grace(BARE, 200.5) == 602
    assert choose_grace(FULL, 1700.0) == 1800
    *_, job = yaml.safe_load_all(training(BARE, slowest_save=200.5))
    assert job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 602
    with pytest.raises(UserError, match=r"^grace: 1800 is less than the run's slowest save took, 1800 s; give more$"):
        training(FULL, slowest_save=1800.0)


ASSETS: dict[str, Any] = {"image": "zeromt:1", "volumes": [{"mount": "/home/me", "claim": "home"}]}


@pytest.mark.parametrize(
    ("site", "changes", "message"),
    [
        ({}, {"name": "a b"}, "--job-name: 'a b'; allowed are letters"),
        ({}, {"name": "a\nb"}, "--job-name: 'a\\nb'; allowed are letters"),
        (
            {},
            {"name": "x" * 41},
            f"--job-name: '{'x' * 41}'; allowed are letters, digits, '.', '_' and '-', at most 40",
        ),
        ({}, {"nodes": "2-4"}, "--nodes: '2-4'; allowed is a number from 1 to 99999 on Kubernetes"),
        ({}, {"nodes": "0"}, "--nodes: '0'; allowed is a number"),
        ({}, {"overrides": ("a\nb",)}, "command: 'a\\nb'; allowed is text without line breaks"),
        ({"image": None}, {}, "image: none given; allowed is a container image that has zeromt"),
        (
            {"volumes": []},
            {},
            "volumes: none that can be written holds the run's folder '/home/me/my work/runs/my run'",
        ),
        (
            {"directory": "/elsewhere"},
            {},
            "volumes: none that can be written holds the run's folder '/elsewhere/runs/my",
        ),
        ({}, {"run": "../../../etc"}, "volumes: none that can be written holds the run's folder"),
        ({"service_account": None}, {"after": "x"}, "service_account: none with --after; allowed is one that may read"),
        ({}, {"after": "a;b"}, "--after: 'a;b'; allowed is the name of a Job"),
        ({"workload": "jobset"}, {"after": "x"}, "--after: 'x' with workload=jobset: a JobSet waits for no other job"),
        ({"workload": "jobset"}, {"name": "3d"}, "--job-name: '3d'; allowed is one that begins with a letter"),
    ],
)
def test_refused_values(site: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        training(dataclasses.replace(BARE, **site), **changes)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"volumes": [{"mount": "x", "claim": "a"}]}, "volumes.0.mount: 'x'; allowed is text that matches"),
        (
            {"volumes": [{"mount": "/x"}]},
            "volumes.0.claim: '/x' is given by nothing; allowed is one of claim, host_path and nfs",
        ),
        (
            {"volumes": [{"mount": "/x", "claim": "a", "nfs": "s:/"}]},
            "volumes.0.claim: '/x' is given by claim and nfs; allowed",
        ),
        ({"volumes": [{"mount": "/x", "clam": "a"}]}, "volumes.0.clam: unknown key"),
        ({"volumes": [{"mount": "/x/..", "claim": "a"}]}, "volumes.0.mount: '/x/..'; allowed is a path without `..`"),
        ({"volumes": [{"mount": "/dev/shm", "claim": "a"}]}, "volumes: '/dev/shm' is a mount already"),
        (
            {"restricted": True, "volumes": [{"mount": "/x", "nfs": "s:/"}]},
            "volumes: '/x' is no claim, with restricted",
        ),
        ({"restricted": True, "user": 0}, "user: 0 is root, with restricted=true; allowed is a number from 1"),
        ({"labels": {"a b": "c"}}, "labels: 'a b'; allowed is NAME or DOMAIN/NAME"),
        ({"environment": {"a-b": "c"}}, "environment: 'a-b'; allowed are names of variables"),
        ({"memory": "10 GB"}, "memory: '10 GB'; allowed is text that matches"),
        ({"tolerations": [{"key": "a", "effect": "No"}]}, "tolerations.0.effect: 'No'; allowed"),
    ],
)
def test_profile_that_is_wrong(section: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_site("kubernetes", None, (), {**ASSETS, **section})
    assert str(caught.value).startswith(message), str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_shipped_profile_renders() -> None:
    site = load_site("kubernetes", "kubernetes")
    job: Job = dataclasses.replace(TRAINING, folder="/somewhere")
    for document in yaml.safe_load_all(site.render(job)):
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
