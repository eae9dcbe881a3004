"""Exchanged files of an evaluation are doubted, right ones are not."""

import gzip
from pathlib import Path

import pytest

from zeromt.evaluating.doubts import of_sides

FOLDER = Path(__file__).parents[3] / "data/tatoeba-en-fr"
ENGLISH, FRENCH = (
    gzip.decompress((FOLDER / f"test.{side}.gz").read_bytes()).decode().splitlines()[:80] for side in ("en", "fr")
)


@pytest.mark.parametrize(
    ("source", "reference", "said"),
    [
        (ENGLISH, FRENCH, []),
        (FRENCH, ENGLISH, ["--source is nearer to the translations than --reference; are the two exchanged?"]),
        (ENGLISH, ENGLISH, ["--reference: 40 of 40 lines are those of --source; is one file given for both?"]),
        (ENGLISH[:5], ENGLISH[:5], []),
    ],
)
def test_sides(source: list[str], reference: list[str], said: list[str]) -> None:
    lines = len(source[:40])
    assert list(of_sides(source[:lines], reference[:lines], FRENCH[40 : 40 + lines])) == said  # French, as a model's
