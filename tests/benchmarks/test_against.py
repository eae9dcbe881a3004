"""This tree's speed against that of another commit: real worktrees and runs."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.common.child import ROOT
from benchmarks.training.against import CORPUS, Tree, pair

SMALL = ["--pairs", "2", "--seconds", "1", "--warm-up", "1", "--vocab", "500", "--budget", "512", "--threads", "1"]
SMALL += ["--source", str(CORPUS / "valid.en.gz"), "--target", str(CORPUS / "valid.fr.gz"), "--least", "0"]


def against(commit: str, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "benchmarks.training.against", commit, *options]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def worktrees() -> str:
    return subprocess.run(["git", "worktree", "list"], cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_both_trees_run_and_the_worktree_goes(tmp_path: Path) -> None:
    before = worktrees()
    done = against("HEAD", *SMALL, "--work", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" target tokens/s, ") == 2
    assert "\nmedian " in done.stdout
    assert str(tmp_path) not in worktrees(), f"of {before}"
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_commit_is_refused_in_a_line() -> None:
    done = against("no-such-commit")
    assert done.returncode == 2
    assert "argument COMMIT: no-such-commit" in done.stderr


def test_trees_take_turns_at_being_first() -> None:
    begun: list[str] = []

    def tree(name: str, rate: float) -> Tree:
        def train(number: int, **_: Any) -> dict[str, float]:
            begun.append(f"{name} {number}")
            return {"tokens_per_second": rate, "updates": 1}

        return cast(Tree, SimpleNamespace(name=name, train=train))

    trees, args = [tree("this", 6.0), tree("other", 3.0)], SimpleNamespace(warm_up=1, seconds=1.0)
    found = [pair(trees, number, args) for number in range(3)]
    assert begun == ["this 0", "other 0", "other 1", "this 1", "this 2", "other 2"]
    assert [f["ratio"] for f in found] == [2.0] * 3
