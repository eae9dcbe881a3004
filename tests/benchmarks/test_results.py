"""Results that programs write have what docs/benchmarks.md shows of them."""

import json
from argparse import Namespace
from pathlib import Path

from benchmarks.common import measure, results
from benchmarks.common.results import record


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
