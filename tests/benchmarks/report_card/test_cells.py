"""What cells need and what they read."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks.common.child import ROOT
from benchmarks.device import kernels
from benchmarks.device.budget_batches import micro_batches, sampled
from benchmarks.device.profiling import union
from benchmarks.device.programs import read_metrics
from benchmarks.device.report_card.cells import CELLS, PARTS
from benchmarks.device.report_card.gpu_tests import outcomes
from model.kernels.cuda.ways import efficient_attention
from model.layout import Side
from tests.conftest import ask_python

DEV_ALONE = (
    "pytest",
    "hypothesis",
    "jsonschema",
    "nbclient",
    "transformers",
    "accelerate",
    "ctranslate2",
)


def test_names() -> None:
    names = [cell.name for cell in CELLS]
    assert len(set(names)) == len(names)
    assert {cell.letter for cell in CELLS} == set(PARTS)


def test_every_cell_comes_without_the_packages_of_the_checks() -> None:
    """A site has those of a run alone."""
    code = f"""
import sys, importlib
sys.modules |= dict.fromkeys({DEV_ALONE!r})
import benchmarks.device.report_card.__main__
for name in {sorted({cell.function for cell in CELLS} | {"benchmarks.device.report_card.machine.card"})!r}:
    module, _, function = name.rpartition(".")
    assert callable(getattr(importlib.import_module(module), function)), name
"""
    ask_python(code)


def test_every_file_with_a_test_for_gpus_is_in_a_cell() -> None:
    marked = re.compile(r"pytest\.mark\.gpu\b")
    files = {
        str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("test_*.py") if marked.search(file.read_text())
    }
    files.discard(str(Path(__file__).relative_to(ROOT)))
    assert files == {cell.arguments["file"] for cell in CELLS if cell.letter == "e"}


def test_tests_that_ended_are_kept_with_their_seconds_and_reasons() -> None:
    said = """
tests/a.py::test_one[cuda fp32] PASSED                     [ 25%]
tests/a.py::test_two FAILED                                [ 50%]
tests/a.py::test_three[x - y] SKIPPED (no GPU)             [ 75%]
tests/a.py::test_four
============================= slowest durations ==============================
2.50s call     tests/a.py::test_one[cuda fp32]
0.25s setup    tests/a.py::test_one[cuda fp32]
FAILED tests/a.py::test_two - assert 1 == 2
"""
    assert outcomes(said) == [
        {"test": "tests/a.py::test_one[cuda fp32]", "outcome": "passed", "seconds": 2.75, "reason": ""},
        {"test": "tests/a.py::test_two", "outcome": "failed", "seconds": 0.0, "reason": "assert 1 == 2"},
        {"test": "tests/a.py::test_three[x - y]", "outcome": "skipped", "seconds": 0.0, "reason": ""},
    ]


def test_torch_takes_what_the_attention_of_xformers_is_given() -> None:
    """It runs on cards alone; on no device at all its arguments and shapes are checked."""
    there = torch.device("meta")
    query, key, value = (torch.empty(6, 2, 8, device=there, dtype=torch.bfloat16) for _ in range(3))
    side = kernels.packed_side(torch.tensor([2, 4]), torch.device("cpu"))
    assert side.bounds is not None
    side = Side(places=side.places.to(there), bounds=side.bounds.to(there), longest=side.longest)
    assert efficient_attention(query, key, value, side, side, is_causal=True, scale=0.5)[0].shape == (6, 2, 8)


@pytest.mark.parametrize("tokens", [3_200, 16_384, 32_768])
def test_the_sampled_micro_batches_have_the_rows_of_the_corpus(tokens: int) -> None:
    def rows_a_token(batches: list[NDArray[np.int64]]) -> float:
        return sum(map(len, batches)) / sum(int(batch[:, 1].sum()) for batch in batches)

    assert rows_a_token(sampled(tokens, 12)) == pytest.approx(rows_a_token(micro_batches(tokens)), rel=0.04)


def test_kernels_that_overlap_are_not_counted_twice() -> None:
    assert union([(5, 7), (0, 2), (1, 4), (1, 3), (7, 8)]) == 7


def test_rates_of_a_run_that_logs_by_intervals(tmp_path: Path) -> None:
    line = {"kind": "train", "source_tokens": 30, "padding": 0.5, "waiting_for_data": 0.1, "loss": 3.0}
    lines = [{**line, "step": s, "total_seconds": 2.0 * s, "target_tokens": 10 * s} for s in (10, 20, 30)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = read_metrics(tmp_path / "metrics.jsonl")
    assert found["tokens_per_second"] == (200 + 300) / 40
    assert found["seconds_per_update"] == 2.0
