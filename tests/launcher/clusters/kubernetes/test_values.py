"""Hostile values arrive in the pods verbatim or are refused: no canary is ever touched."""

import dataclasses
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.site import load_site
from launcher.clusters.kubernetes.section import Volume
from tests.launcher.clusters.kubernetes.fake_cluster import INDEX, JOB, FakeCluster
from tests.launcher.clusters.kubernetes.test_manifest import ASSETS, BARE, WORDS, array, training
from tests.launcher.clusters.refusals import HARM, refusal
from tests.waiting import PATIENCE

LINES = ("\n", "\n        command: [touch, canary]\n", "\r", "\x00", "\n---\nkind: Pod\n", "\u2028", "\ud800")
SIGNS = (" ", "&& touch canary", "\\", "$HOME", "$$", "$(ZEROMT_JOB_ID)", "*a", "&a", "~", "{a,b}", "${x}", "%")
EVIL = st.lists(st.sampled_from(HARM + LINES + SIGNS + WORDS), min_size=1, max_size=4).map("".join)


def with_evil(where: str, evil: str) -> str:
    """A manifest with the value in one place."""
    if where == "override":
        return training(BARE, overrides=(f"name={evil}", evil))
    if where == "config":
        return training(BARE, config=evil)
    if where == "part":
        return array(BARE, words=("prepare", evil, evil))
    if where == "merge":
        return array(BARE, is_merge=True, words=("prepare", evil, evil))
    if where in ("environment", "annotations"):
        changes: dict[str, Any] = {where: {"EVIL": evil}}
        return training(dataclasses.replace(BARE, **changes))
    if where == "python":
        return training(dataclasses.replace(BARE, python=evil))
    if where == "directory":
        return training(dataclasses.replace(BARE, directory=f"/home/me/{evil}"), run="run")
    volume: dict[str, Any] = {
        where: evil if where == "sub_path" else f"server:/{evil}" if where == "nfs" else f"/{evil}"
    }
    source = {} if where in ("nfs", "host_path") else {"claim": "x"}
    mount = {} if where == "mount" else {"mount": "/x"}
    return training(dataclasses.replace(BARE, volumes=[*BARE.volumes, Volume(**{**source, **mount, **volume})]))


PLACES = (
    "override",
    "config",
    "part",
    "merge",
    "environment",
    "annotations",
    "python",
    "directory",
    "sub_path",
    "nfs",
)


def same(one: object, other: object, evil: str) -> bool:
    """Whether two documents differ by nothing but strings that hold the value."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key], evil) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(a, b, evil) for a, b in zip(one, other, strict=True))
    return one == other or (isinstance(one, str) and evil in one)


@settings(max_examples=100, deadline=None)
@given(evil=EVIL, where=st.sampled_from([*PLACES, "host_path", "mount"]))
def test_values_arrive_verbatim_or_are_refused(evil: str, where: str) -> None:
    text, message = refusal(lambda: with_evil(where, evil))
    if message:
        assert re.search("[\x00-\x1f\u2028\ud800]", evil) or (where == "directory" and ".." in evil)
        assert len(message.splitlines()) == 1
        return
    assert not re.search("[\x00-\x1f\u2028\ud800]", evil)
    documents = list(yaml.safe_load_all(text))
    harmless = list(yaml.safe_load_all(with_evil(where, "harmless")))  # which is valid, as the golden ones are
    written = evil.replace("$", "$$") if where in (*PLACES[:5], "python") else evil
    assert same(documents, harmless, written), text
    pod = {
        "metadata": {"name": "p", "labels": {JOB: "j", INDEX: "3"}},
        "spec": documents[-1]["spec"]["template"]["spec"],
    }
    cluster = FakeCluster.__new__(FakeCluster)
    cluster.environment = {"HOME": "/root", "touch canary": "harm"}
    cluster.folder = Path("/state")
    _, words, variables = cluster.process_of(pod, pod["spec"]["containers"][0])
    if where in PLACES[:4]:
        assert evil in words
    assert where != "environment" or variables["EVIL"] == evil
    assert where != "python" or words[0] == evil
    assert variables["ZEROMT_JOB_ID"] == "j"


def test_a_command_is_executed_as_it_was_meant(tmp_path: Path) -> None:
    """By a real process, as the container runtime starts it: with every harmful word, and no canary afterwards."""
    stub = tmp_path / "my python"
    stub.write_text('#!/bin/bash\nprintf "%s\\0" "$@" "$EVIL" >got\n')
    stub.chmod(0o755)
    words = [*HARM, *SIGNS, *WORDS]
    site = dataclasses.replace(
        BARE,
        python=str(stub),
        directory=str(tmp_path),
        volumes=[Volume(mount="/", claim="x")],
        environment={"EVIL": "".join(words)},
    )
    pod = {
        "metadata": {"name": "p", "labels": {JOB: "j", INDEX: "0"}},
        "spec": yaml.safe_load(array(site, is_merge=True, words=("prepare", "c", "--", *words)))["spec"]["template"][
            "spec"
        ],
    }
    cluster = FakeCluster.__new__(FakeCluster)
    cluster.environment, cluster.folder = dict(os.environ), tmp_path
    (container,) = pod["spec"]["containers"]
    _, command, variables = cluster.process_of(pod, container)
    subprocess.run(command, env=variables, cwd=container["workingDir"], check=True, timeout=PATIENCE)
    got = (tmp_path / "got").read_text().split("\0")[:-1]
    assert got[got.index("--") + 1 :] == [*words, "".join(words)]
    assert not (tmp_path / "canary").exists()


@settings(max_examples=40, deadline=None)
@given(
    evil=EVIL,
    where=st.sampled_from(
        [
            "image",
            "namespace",
            "context",
            "gpu_resource",
            "memory",
            "shared_memory",
            "priority_class",
            "service_account",
            "interface",
        ]
    ),
)
def test_what_kubernetes_reads_has_a_pattern(evil: str, where: str) -> None:
    text, message = refusal(
        lambda: training(load_site("kubernetes", None, (), {**ASSETS, where: evil, "gpus_per_node": 1}))
    )
    if message:
        assert len(message.splitlines()) == 1
        assert where in message
        return
    assert re.fullmatch(r"[A-Za-z0-9_./:@-]+", evil) or where == "context"
    for document in yaml.safe_load_all(text):
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
