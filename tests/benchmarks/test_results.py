"""Results that programs write have what docs/benchmarks.md shows of them."""

import json
from argparse import Namespace
from pathlib import Path

from benchmarks.common import measure, results
from benchmarks.common.results import Row, record
from benchmarks.decoding import decode
from benchmarks.training import ranks, train

MIB = 2**20
RUN = {
    "tokens_per_second": 30.0,
    "seconds_per_update": 0.5,
    "padding": 0.1,
    "waiting_for_data": 0.01,
    "logging": 0.02,
    "peak_memory": 7 * MIB,
    "stolen": 0.0,
}


def training() -> list[Row]:
    rounds = [{"zeromt fp32": RUN, "eole": {**RUN, "tokens_per_second": t}, "plain loop": RUN} for t in (10.0, 20.0)]
    ratios = [{"program": "plain loop", "of": "eole", "ratios": [3.0, 1.5], "target": 1.05}]
    return train.rows_of(rounds, ratios)


def two_ranks() -> list[Row]:
    rounds = [{"one process": RUN, "ZeRO-0": RUN}]
    return ranks.rows_of({"peaks": dict.fromkeys(rounds[0], MIB), "rounds": rounds, "ratios": {"ZeRO-0": [1.0]}}, 2)


def decoded() -> list[Row]:
    program = {"sentences_per_second": [9.0], "target": None, "bleu": 30.0, "zeromt_over_this": {"zeromt": [1.0]}}
    programs = {"zeromt": program, "eole": {**program, "target": 1.5}}
    return [row for beam in (1, 5) for row in decode.rows_of({"beam": beam, "programs": programs})]


QUESTIONS = {
    "training": training,
    "ranks": two_ranks,
    "decoding": decoded,
}


EXPECTED: dict[str, list[Row]] = {
    "training": [{"program": "eole", "tokens_per_second": 15.0, "zeromt_over_this": [2.25, 1.5, 3.0], "target": 1.2}],
    "ranks": [{"program": "ZeRO-0", "of_one_process": 1.0, "target": 0.9, "tokens_per_second": 30.0}],
    "decoding": [{"search": "beam 5", "program": "eole", "zeromt_fp32_over_this": 1.0, "target": 1.5, "bleu": 30.0}],
}
"""Of the rows that each program records."""


def test_the_last_result_of_each_program_is_kept(tmp_path: Path) -> None:
    args = Namespace(json=None, results=tmp_path, command="python -m x")
    for question, rows in QUESTIONS.items():
        for precision in ("bf16", "fp32"):
            figures = {"machine": measure.machine(), "raw": [1]}
            record(args, question, rows(), figures, settings={"precision": precision})
    assert {path.stem for path in tmp_path.iterdir()} == set(QUESTIONS)
    for question, expected in EXPECTED.items():
        found = json.loads((tmp_path / f"{question}.json").read_text())
        assert found["settings"] == {"precision": "fp32"}
        assert "details" not in found
        for row in expected:
            assert any(row.items() <= other.items() for other in found["rows"]), row


def test_a_result_tells_what_it_was_measured_on_and_keeps_the_rounds(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    args = Namespace(json=file, results=None, command="python -m x --rounds 2")
    record(args, "q", [{"a": 1 / 3}], {"machine": measure.machine(), "rounds": [[1, 2]]}, versions={"eole": "0.6"})
    found = json.loads(file.read_text())
    assert found["rows"] == [{"a": 0.333333}]
    assert found["details"] == {"rounds": [[1, 2]]}
    assert found["versions"]["eole"] == "0.6"
    assert {"torch", "deepspeed", "python"} <= set(found["versions"])
    assert found["commit"] == results.commit()
    assert found["machine"]
    assert found["command"] == "python -m x --rounds 2"
