"""A checkpoint goes on at any number of ranks and any ZeRO stage; see elastic.py."""

import itertools
from pathlib import Path

import pytest

from tests.forked import Forked
from tests.trainer.stability import elastic
from tests.waiting import PATIENCE


@pytest.mark.timeout(600)
def test_a_sample_of_the_elastic_matrix(forked: Forked, tmp_path: Path) -> None:
    drawn = elastic.draw(3, seed=15)
    assert all((s.size, s.stage) != (t.size, t.stage) for s, t in drawn)
    pairs = {"fp32": drawn, "bf16": drawn[:1]}
    found = elastic.measure(pairs, tmp_path, forked, updates=8, timeout=PATIENCE)
    assert {precision: len(f["deviations"]) for precision, f in found.items()} == {"fp32": 3, "bf16": 1}
    assert 0 < found["bf16"]["allowed"] < 0.1
    assert elastic.is_within(found), found


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_elastic_matrix(forked: Forked, tmp_path: Path) -> None:
    places = elastic.ALL
    pairs = {
        "fp32": list(itertools.product(places, places)),
        "bf16": list(zip(places, places[5:] + places[:5], strict=True)),
    }
    found = elastic.measure(pairs, tmp_path, forked, timeout=3600)
    elastic.show(pairs, found)
    assert elastic.is_within(found)
