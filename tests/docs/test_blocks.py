"""The code blocks of README, CONTRIBUTING and docs/. `make docs` has the links.

A block of `sh` or `python` has an invisible comment before it:

    <!-- run -->                run by `make test`, in a folder with my.yaml, runs/my and more (`folder`)
    <!-- slow -->               run by `make test-slow`, after the blocks of the page before it, in the same folder
    <!-- slow a.b=c ... -->     the same; trainings get these settings too, so that they are short
    <!-- parse: REASON -->      not run, for that reason; only its syntax is checked

A block of `yaml` is read as a site's profile where it is one (`# my-site.yaml`), else as (a part of) a run's
configuration. One of any language that begins with its file's name, as `# NAME.yaml`, is written to the folder before
the blocks after it run.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
import yaml

from configs import load_run
from configs.components.registry import FAMILIES, kinds, registered, restore
from launcher.slurm.profile import load_profile
from tests.conftest import BUNDLED, REPO, bundled, environment
from tests.forked import Forked
from zeromt.cli.main import parse


class Block(NamedTuple):
    """A code block."""

    how: str
    more: str
    language: str
    text: str
    file: str
    """That it is, or nothing."""


BLOCK = re.compile(
    r"(?:^<!-- (run|slow|parse):? ?(.*) -->\n+)?"
    r"^```(sh|python|yaml|toml|text)\n((?:# ([\w./-]+\.\w+)\b)?(?:.*\n)*?)```$",
    re.M,
)
PAGES = {
    path.relative_to(REPO).as_posix(): [Block(*groups) for groups in BLOCK.findall(path.read_text(encoding="utf-8"))]
    for path in (REPO / "README.md", REPO / "CONTRIBUTING.md", *sorted((REPO / "docs").rglob("*.md")))
}


def pages(*hows: str) -> list[str]:
    """Those with blocks that are tested in one of these ways."""
    return [page for page, blocks in PAGES.items() if any(block.how in hows for block in blocks)]


@pytest.mark.parametrize("page", PAGES)
def test_blocks_say_how_they_are_tested_and_have_a_syntax(page: str) -> None:
    for how, _, language, text, file in PAGES[page]:
        if language == "sh":
            assert how, text
            subprocess.run(["bash", "-n"], input=text, text=True, check=True, timeout=60)
        elif language == "python":
            assert how or file, text
            compile(text, page, "exec")


SETTINGS = [
    (page, block) for page in PAGES for block in PAGES[page] if block.language == "yaml" and block.how != "parse"
]


@pytest.mark.parametrize(("page", "block"), SETTINGS)
def test_settings_are_read(page: str, block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)
    file = tmp_path / "my.yaml"
    if block.file.endswith("site.yaml"):
        file.write_text(block.text)
        load_profile(str(file))
        return
    (tmp_path / "examples").symlink_to(REPO / "examples")
    for other in PAGES[page]:
        if other.file.endswith(".py"):
            (tmp_path / other.file).write_text(other.text)
    shipped: dict[str, Any] = yaml.safe_load((REPO / "configs" / "runs" / "debug.yaml").read_text())
    for name, section in (yaml.safe_load(block.text) or {}).items():
        is_part = isinstance(section, dict) and name in shipped
        shipped[name] = shipped[name] | section if is_part else section
    file.write_text(yaml.safe_dump(shipped))
    for family in FAMILIES:
        kinds(family)  # all of ours, or they would be taken out with what a page's plugin adds
    before = registered()
    load_run(str(file))
    restore(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, forked: Forked) -> Path:
    """What the pages take for granted: my.yaml, prepared, with its run; texts; other runs; a site's profile."""
    root = tmp_path_factory.mktemp("pages")
    (root / "data").mkdir()
    (root / "data" / "tatoeba-en-fr").symlink_to(BUNDLED)
    config = yaml.safe_load((REPO / "configs" / "runs" / "debug.yaml").read_text())
    config["prepare"] |= {
        "output": "data/my",
        "pairs_per_block": 32,
        "tokenizer": {"vocab_size": 500, "tags": [">>bt<<"]},
    }
    config["stream"] = {"micro_batches": 4, "source_tokens": 512, "target_tokens": 512}
    config["training"] = {"max_updates": 12, "log_every": 2}
    config["evaluation"] = {"every_updates": 6, "max_pairs": 5, "search": {"beam": 1, "max_length_extra": 5}}
    config["checkpoint"] = {"every_updates": 2, "keep_last": 6}
    (root / "my.yaml").write_text(yaml.safe_dump(config))
    for name, language in (("test.en", "en"), ("in.en", "en"), ("test.de", "fr"), ("test.fr", "fr")):
        (root / name).write_bytes(bundled(language, slice(0, 12)))
    (root / "my-site.yaml").write_text("{sbatch: {partition: gpu}, gpus_per_node: 1}\n")
    for done in (forked.zeromt("prepare", "my.yaml", cwd=root), forked.trainer(1, "my.yaml", cwd=root)):
        assert done.code == 0, done.err[-3000:]
    for other in ("base", "deep", "wide", "a", "b"):
        shutil.copytree(root / "runs" / "my", root / "runs" / other)
    program = root / "bin" / "zeromt"
    program.parent.mkdir()
    more = 'case "$1 $2" in "train "*|"launch local") set -- "$@" $MORE;; esac'
    program.write_text(f'#!/bin/bash\n{more}\nexec python -m zeromt "$@"\n')
    program.chmod(0o755)
    return root


def run(chosen: Sequence[Block], folder: Path, *, seconds: float) -> None:
    """Write those that are files and run the others, one after another; each must succeed."""
    path = os.pathsep.join([f"{folder}/bin", str(Path(sys.executable).parent), os.environ["PATH"]])
    for block in chosen:
        if block.file:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text)
            continue
        command = ["bash", "-euo", "pipefail", "-c"] if block.language == "sh" else [sys.executable, "-c"]
        done = subprocess.run(
            [*command, block.text.replace(".venv/bin/", "")],
            cwd=folder,
            env={**environment(), "PATH": path, "MORE": block.more},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{block.text}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("page", pages("run"))
def test_quick_blocks_run(page: str, folder: Path) -> None:
    run([block for block in PAGES[page] if block.file or block.how == "run"], folder, seconds=240)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", pages("slow"))
def test_slow_blocks_run(page: str, folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(folder, own, symlinks=True)
    chosen = [block for block in PAGES[page] if block.file or block.how in ("run", "slow")]
    if any(block.file == "my.yaml" or "zeromt init " in block.text for block in chosen):  # what others take for granted
        (own / "my.yaml").unlink()
        shutil.rmtree(own / "runs" / "my")
        shutil.rmtree(own / "data" / "my")
    run(chosen, own, seconds=1200)


def test_the_manifests_for_kubernetes_are_one_job_of_several_nodes() -> None:
    [block] = [block for block in PAGES["docs/clusters.md"] if block.file == "jobset.yaml"]
    jobset, policy = yaml.safe_load_all(block.text)
    schemas = yaml.safe_load_all((Path(__file__).parent / "jobset.schema.yaml").read_text())
    for manifest, schema in zip((jobset, policy), schemas, strict=True):
        jsonschema.validate(manifest, schema)
    [job] = jobset["spec"]["replicatedJobs"]
    [container] = job["template"]["spec"]["template"]["spec"]["containers"]
    arguments = node_arguments(" ".join(container["command"]))
    assert arguments["nnodes"] == job["template"]["spec"]["completions"] == job["template"]["spec"]["parallelism"]
    name = jobset["metadata"]["name"]
    assert arguments["rendezvous"][0] == f"{name}-{job['name']}-0-0.{name}"
    own = {"podSelector": {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": name}}}
    assert policy["spec"] == {**own, "policyTypes": ["Ingress"], "ingress": [{"from": [own]}]}


def test_commands_for_a_node_are_read() -> None:
    text = "".join(block.text for block in PAGES["docs/clusters.md"] if block.language == "sh").replace("\\\n", "")
    commands = re.findall(r"zeromt launch node .*", text)
    assert len(commands) == 3
    for command in commands:
        assert node_arguments(command.replace('"', ""))["rendezvous"][1] == 29400


def node_arguments(command: str) -> dict[str, Any]:
    """What the command line makes of it, with 2 for what a shell, pdsh or Kubernetes puts in."""
    return parse(re.sub(r"%n|\$\(.*?\)|\$\{.*?\}|\$\w+", "2", command).split()[1:])[1]
