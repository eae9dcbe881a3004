"""Results that programs write have what docs/benchmarks.md shows of them."""

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

from benchmarks.common import measure, results
from benchmarks.common.results import Row, record
from benchmarks.data import rows as data_rows
from benchmarks.decoding import decode
from benchmarks.startup import first_update
from benchmarks.training import ranks, saving, time_to_bleu, train
from benchmarks.training.time_to_bleu import Point

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


def started() -> list[Row]:
    return first_update.rows_of([{"zeromt train": 3.0, "eole": 7.0}])


def saved() -> list[Row]:
    ways = {way: {"stopped_seconds": s, "seconds": 4.0} for way, s in (("background", 1.0), ("blocking", 3.0))}
    return saving.rows_of({"rounds": [ways]})


def decoded() -> list[Row]:
    program = {"sentences_per_second": [9.0], "target": None, "bleu": 30.0, "zeromt_over_this": {"zeromt": [1.0]}}
    programs = {"zeromt": program, "eole": {**program, "target": 1.5}}
    return [row for beam in (1, 5) for row in decode.rows_of({"beam": beam, "programs": programs})]


def learnt() -> list[Row]:
    curves = {
        name: [Point(update=1, seconds=s, bleu=b) for s, b in ((1, 0), (2, 40))] for name in ("zeromt", "plain loop")
    }
    return time_to_bleu.rows_of(curves, 31.0, 4)


def data() -> list[Row]:
    run = {"pairs": 4, "tokens": 8, "seconds": 2.0, "bytes": 9}
    figures: dict[str, Any] = {
        "preparation": {
            "sentencepiece": {1: [run]},
            "prepare": {1: [run]},
            "with_training": run,
            "of_sentencepiece": {1: [0.8]},
        },
        "disk": {"text": {"bytes_a_pair": 2.0, "one_pair": {"npy": 8.0}, "times": {"npy": 4.0}}},
        "reading": {
            "text": {
                "tokens_per_second": {
                    "zeromt, in the loop": [8.0],
                    "zeromt, 2 processes": [9.0],
                    "webdataset, x": [2.0],
                },
                "times": {"webdataset, x": [4.0]},
            },
            "trainer": {"tokens_per_second": 1.0, "waiting_for_data": 0.1},
        },
        "padding": {"text": dict.fromkeys(data_rows.PADDING_COLUMNS, 0.1)},
        "ranks": {"shards": 2, "worlds": {3: {"reading": 4}}},
        "memory": {"rounds": {1: [{"pairs": 3, "anonymous": MIB}]}},
    }
    return [row for part, of in data_rows.ROWS.items() for row in of(figures[part])]


QUESTIONS = {
    "training": training,
    "ranks": two_ranks,
    "startup": started,
    "checkpoints": saved,
    "decoding": decoded,
    "time_to_bleu": learnt,
    "data": data,
}


EXPECTED: dict[str, list[Row]] = {
    "training": [{"program": "eole", "tokens_per_second": 15.0, "zeromt_over_this": [2.25, 1.5, 3.0], "target": 1.2}],
    "ranks": [{"program": "ZeRO-0", "of_one_process": 1.0, "target": 0.9, "tokens_per_second": 30.0}],
    "startup": [{"program": "zeromt train", "seconds": 3.0, "target": 8.0}],
    "checkpoints": [{"way": "blocking", "stands_still_seconds": 3.0}, {"blocking_over_background": 3.0}],
    "decoding": [{"search": "beam 5", "program": "eole", "zeromt_fp32_over_this": 1.0, "target": 1.5, "bleu": 30.0}],
    "time_to_bleu": [{"seed": 4, "goal": 31.0, "zeromt_seconds": 1.775, "ratio": 1.0}],
    "data": [{"part": "reading", "zeromt": 8.0, "webdataset": 2.0, "times": 4.0, "two_processes": 9.0}],
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
