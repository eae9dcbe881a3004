from collections import Counter
from pathlib import Path

import pytest

from benchmarks.common import text
from benchmarks.common.text import generate, head, read_lines


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "BATCH_PAIRS", 1000)


def test_a_longer_text_begins_with_the_shorter_one(tmp_path: Path) -> None:
    short, long = generate(tmp_path, 1500), generate(tmp_path, 3200)
    for side in (0, 1):
        lines = read_lines(long.sides[side])
        assert len(lines) == 3200
        assert read_lines(short.sides[side]) == lines[:1500]
        assert len(set(lines)) > 3100  # pieces are not the same ones again


def test_the_text_is_like_language(tmp_path: Path) -> None:
    lines = read_lines(generate(tmp_path, 3000).source)
    words = [word for line in lines for word in line.lower().rstrip(".").replace(",", "").split()]
    assert 19 < len(words) / len(lines) < 23
    counts = [count for _, count in Counter(words).most_common()]
    assert 0.02 < counts[0] / len(words) < 0.06  # Zipf: the first word is some 4 % of all
    assert counts[0] / counts[9] == pytest.approx(12.7 / 3.7, rel=0.2)  # ranks 1 and 10
    assert 3.5 < sum(map(len, words)) / len(words) < 7


def test_head(tmp_path: Path) -> None:
    made = generate(tmp_path, 20)
    assert read_lines(head(made, tmp_path, 3).target) == read_lines(made.target)[:3]
