"""What is counted of programs that take turns."""

import pytest

from benchmarks.training import ranks


def test_the_time_of_the_others_is_not_counted() -> None:
    def line(end: float) -> dict[str, float]:
        return {"total_seconds": end, "target_tokens": 100, "seconds_per_update": 0.9, "waiting_for_data": 0.1}

    turns = [[line(end) for end in ends] for ends in ((31.0, 32.0, 33.0, 34.0), (71.0, 72.0, 73.5, 75.0))]
    found = ranks.summary(turns)
    assert found["updates"] == 4
    assert found["tokens_per_second"] == pytest.approx(400 / 5)
    assert found["seconds_per_update"] == pytest.approx(5 / 4)
    assert found["logging"] == pytest.approx(1 - 3.6 / 5)
    assert found["waiting_for_data"] == pytest.approx(0.36 / 5)
