"""Pipelines of commands that take no time."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.launcher.conftest import environment
from tests.waiting import PATIENCE

Pipeline = Callable[..., "subprocess.CompletedProcess[str]"]
UPPER = ["bash", "-c", "tr a-z A-Z < {text} > {output}"]
STEPS: dict[str, Any] = {
    "upper": {"run": UPPER},
    "head": {"run": "head -n ${settings.n} {upper}", "stdout": "{output}"},
    "both": {"run": "cat {upper} {head}", "stdout": "{output}"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The current folder of the pipeline, with its file and its input."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "in.txt").write_text("a\nb\nc\n")
    write(folder, STEPS)
    return folder


def write(folder: Path, steps: dict[str, Any], **keys: Any) -> None:
    """Write the pipeline's file."""
    tree = {"output": "out", "settings": {"n": 2}, "inputs": {"text": "in.txt"}, "steps": steps, **keys}
    (folder / "my.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))


def command(*words: str) -> list[str]:
    """The command line of `zeromt pipeline my.yaml`."""
    return [sys.executable, "-P", "-m", "zeromt", "pipeline", *(words or ("my.yaml",))]


def run(folder: Path, *words: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    """Run `zeromt pipeline` in a folder, and check how it ends."""
    done = subprocess.run(
        command(*words), cwd=folder, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def begun(done: "subprocess.CompletedProcess[str]") -> list[str]:
    """The steps that ran, in order, each with the reason that was given."""
    return [line.replace(": begins", "", 1) for line in done.stdout.splitlines() if ": begins" in line]
