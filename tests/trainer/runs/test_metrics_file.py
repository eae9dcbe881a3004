"""metrics.jsonl is read while it is written, and whatever stands in it."""

import json
from pathlib import Path
from typing import Any

import pytest

from trainer.runs.metrics_file import cut_back, read_lines, slowest_save

JUNK = ["", "{", "[]\n", "\x00\xff", '{"kind": "train", "step": "x"}\n', "[" * 100_000 + "\n", "1e999\n"]


def train(step: int) -> dict[str, Any]:
    return {"kind": "train", "step": step, "total_seconds": float(step)}


def evaluation(step: int) -> dict[str, Any]:
    return {"kind": "evaluation", "step": step, "bleu": 1.0 + step}


def save(step: int, *, succeeded: bool = True, **more: Any) -> dict[str, Any]:
    return {"kind": "event", "step": step, "event": "checkpoint", "succeeded": succeeded, "seconds": 2.5, **more}


def write(path: Path, lines: list[dict[str, Any]], end: str = "") -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + end)


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("is_last", [False, True])
def test_what_is_no_line_is_passed_over(tmp_path: Path, junk: str, is_last: bool) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [train(1), save(1), evaluation(1), train(2)]
    write(path, lines, junk)
    if not is_last:
        with path.open("a") as file:
            file.write("\n" + json.dumps(train(3)) + "\n")
        lines.append(train(3))
    known = [line for line in read_lines(path) if isinstance(line.get("step"), int)]
    assert known == lines
    assert slowest_save(path) == 2.5
    cut_back(path, 2)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [train(1), save(1), evaluation(1), train(2)]
