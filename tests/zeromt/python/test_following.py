"""metrics.jsonl as it is written: each line once, whatever becomes of the file."""

import json
from pathlib import Path

from trainer.runs.metrics_file import cut_back
from zeromt.python.following import Follower


def write(path: Path, *steps: int, seconds: float) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps({"kind": "train", "step": step, "seconds": seconds}) + "\n" for step in steps)


def steps_of(follower: Follower) -> list[int]:
    return [line["step"] for line in follower.lines()]


def test_lines_are_given_once_also_when_the_file_is_cut_back(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, 1, 2, 3, seconds=1)
    follower = Follower(path)
    assert steps_of(follower) == []
    cut_back(path, 2)
    write(path, 3, 4, seconds=2)
    assert steps_of(follower) == [3, 4]
    with path.open("a") as file:
        file.write('{"kind": "train", "st')
    assert steps_of(follower) == []
    with path.open("a") as file:
        file.write('ep": 5}\n')
    assert steps_of(follower) == [5]
    write(path, 6, seconds=2)  # not read before it is cut away, and given all the same: it was done
    cut_back(path, 4)
    write(path, 5, seconds=3)
    assert steps_of(follower) == [6, 5]
    path.rename(tmp_path / "old")  # --fresh
    write(path, 1, seconds=4)
    assert steps_of(follower) == [1]
    follower.close()


def test_a_file_that_comes_later(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "metrics.jsonl")
    assert steps_of(follower) == []
    write(tmp_path / "metrics.jsonl", 1, seconds=1)
    assert steps_of(follower) == [1]
    follower.close()
