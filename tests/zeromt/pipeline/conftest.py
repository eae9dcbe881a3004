"""Pipelines of commands that take no time."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import Call, Finished

Run = Callable[..., Finished]
UPPER = ["bash", "-c", "tr a-z A-Z < {text} > {output}"]
STEPS: dict[str, Any] = {
    "upper": {"run": UPPER, "config": {"seen": "${oc.env:SEEN,1}"}},
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


@pytest.fixture
def run(call: Call) -> Run:
    """Runs `zeromt pipeline` in a folder, and checks how it ends."""

    def begin(folder: Path, *words: str, code: int = 0) -> Finished:
        done = call("pipeline", *(words or ("my.yaml",)), cwd=folder)
        assert done.code == code, done.out + done.err
        return done

    return begin


def command(file: str = "my.yaml") -> list[str]:
    """The command line of `zeromt pipeline`."""
    return [sys.executable, "-P", "-m", "zeromt", "pipeline", file]


def begun(done: Finished) -> list[str]:
    """The steps that ran, in order, each with the reason that was given."""
    return [line.replace(": begins", "", 1) for line in done.out.splitlines() if ": begins" in line]
