"""Results that programs write have what the page's tables need of them."""

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import page
from benchmarks.common import measure, results
from benchmarks.common.results import Row, record
from benchmarks.data import rows as data_rows
from benchmarks.decoding import decode
from benchmarks.startup import first_update
from benchmarks.training import growth, loss_memory, ranks, saving, time_to_bleu, train
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


def grown() -> list[Row]:
    found = [{v: {**RUN, "parameters": 1, "flops": 2e9, "flop_per_second": 3e9} for v in (1, 3)}]
    of_the_base = {1: [0.5], 3: [1.0]}
    layers = growth.rows_of("depth", {"rounds": found, "flop_per_second_of_the_base": of_the_base})
    medians = {1: {"pairs": 9, "new": 1.0, "resumed": 2.0, **RUN}}
    return layers + growth.rows_of("corpus", {"medians": medians})


def started() -> list[Row]:
    timed = {"first_update_seconds": 4.0, "parts": {"import torch": 1.0}}
    return first_update.rows_of([{"zeromt train": {"first_update_seconds": 3.0}, first_update.TIMED_PARTS: timed}])


def lost() -> list[Row]:
    way = {"peak": 3 * MIB, "bound": MIB, "seconds": 1.0}
    return loss_memory.rows_of({"rounds": [{"plain": way, "chunked": way}], "shares": [0.05]})


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
    return time_to_bleu.rows_of([curves], 31.0, 4)


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
    "growth": grown,
    "startup": started,
    "loss_memory": lost,
    "checkpoints": saved,
    "decoding": decoded,
    "time_to_bleu": learnt,
    "data": data,
}


def test_the_page_is_made_from_what_programs_write(tmp_path: Path) -> None:
    figures = {"machine": measure.machine(), "raw": [1]}
    args = Namespace(json=None, results=tmp_path, command="python -m x")
    for question, rows in QUESTIONS.items():
        record(args, question, rows(), figures, settings={"precision": "fp32"})
    assert {p.parent.name for p in tmp_path.rglob("*.json")} == set(QUESTIONS)
    made = page.make(results.load(tmp_path), tmp_path / "page.md")
    text = made[tmp_path / "page.md"]
    missing = {s.split("\n")[0] for s in text.split("\n## ") if "Not measured yet." in s}
    assert missing == {
        "What would an update cost an H100?",
        "How good are the shipped runs?",
        "Does the planner scale to a web-crawled corpus?",
        "Is anything lost under random faults?",
        "Do resumes with other ranks and ZeRO stages agree?",
        "Do exports translate as the run does?",
    }
    for row in (
        "| Eole | 15 | 2.25 (1.50 to 3.00) | 1.20 | 7 | 1.00% | 2.00% |",
        "| ZeRO-0 | 1.00 | 0.90 | 30 |",
        "| layers | 1 + 1 | 0.500 | 30 | 7 | 3.0 | 0.50 |",
        "| import torch | 1.00 |",
        "| blocking | 3.00 | 4.00 |",
        "| Eole | 9 | 1.00 | 9 | 1.00 | 1.50 | 30.00 |",
        "| 4 | 31 | 2 | 2 | 1.00 |",
        "| text | 8 | 2 | 4 | 9 |",
    ):
        assert row in text, row
    plots = {path.stem for path in made if path.suffix == ".svg"}
    assert plots == set(QUESTIONS) - {"loss_memory", "data"} | {"padding"}


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


def test_a_page_without_results_is_refused(tmp_path: Path) -> None:
    from configs import UserError

    with pytest.raises(UserError, match="no result in"):
        page.main(["--results", str(tmp_path), "--page", str(tmp_path / "page.md")])
