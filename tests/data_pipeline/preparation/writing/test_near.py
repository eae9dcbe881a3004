"""Near duplicates, against plain sets of shingles."""

import dataclasses
import gzip
import hashlib
import random
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs import CleaningSection, PrepareSection, TokenizerSection, UserError
from data_pipeline.preparation import prepare
from data_pipeline.preparation.prepare import Part
from data_pipeline.preparation.raw import corpus as corpora
from data_pipeline.preparation.report import Report
from data_pipeline.preparation.writing import near
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import PLACES_FILE
from tests.conftest import contents
from tests.data_pipeline.conftest import BUNDLED
from tests.data_pipeline.preparation.edits import edited, shingles
from tests.data_pipeline.preparation.made import Corpus

pytest.importorskip("rensa")

Pairs = list[tuple[str, str]]

PAIR = CleaningSection(near_duplicates="pair")


def _sets(pairs: Pairs) -> list[set[str]]:
    return [{f"s{run}" for run in shingles(s)} | {f"t{run}" for run in shingles(t)} for s, t in pairs]


def _nearest(sets: Sequence[set[str]]) -> np.ndarray[Any, Any]:
    """How similar each is to the most similar one that came before, by comparing every two."""
    numbers = {run: number for number, run in enumerate(sorted(set().union(*sets)))}
    rows = [np.array([numbers[run] for run in one], dtype=np.int64) for one in sets]
    having: list[list[int]] = [[] for _ in numbers]
    nearest, sizes = np.zeros(len(sets)), np.array([len(one) for one in sets])
    for row, own in enumerate(rows):
        common = np.bincount([other for run in own.tolist() for other in having[run]], minlength=row)[:row]
        nearest[row] = (common / np.maximum(1, sizes[:row] + len(own) - common)).max(initial=0)
        for run in own.tolist():
            having[run].append(row)
    return nearest


def _with_edits(count: int) -> Pairs:
    """Bundled pairs, of which a fourth come once more with an edit of one side or both, in any order."""
    files = [gzip.decompress((BUNDLED / f"train.{code}.gz").read_bytes()) for code in ("en", "fr")]
    draw = random.Random(7)
    pairs = list(zip(*(file.decode().splitlines() for file in files), strict=True))[: count * 4 // 5]
    for source, target in draw.sample(pairs, count - len(pairs)):
        which = draw.randrange(3)
        pairs.append((edited(source, draw) if which < 2 else source, edited(target, draw) if which else target))
    draw.shuffle(pairs)
    return pairs


def _kept(section: PrepareSection) -> list[int]:
    """Line numbers of the pairs that a dataset has, from 0."""
    return sorted(int(place) - 1 for place in np.load(Path(section.output) / PLACES_FILE))


def _dropped(section: PrepareSection, count: int) -> list[int]:
    return sorted(set(range(count)) - set(_kept(section)))


def _report(section: PrepareSection) -> dict[str, int]:
    return Report.from_json((Path(section.output) / "report.json").read_bytes()).dropped()


@pytest.fixture
def made(corpus: Corpus, small: Dataset) -> Corpus:
    """Sections of corpora, with a tokenizer that is there."""
    tokenizer = TokenizerSection(path=str(small.folder))
    return lambda pairs, **settings: corpus(pairs, **{"tokenizer": tokenizer, "max_unknown": 1.0, **settings})


@pytest.fixture
def run(made: Corpus) -> Callable[..., PrepareSection]:
    """Prepares pairs with places."""

    def prepared(pairs: Pairs, cleaning: CleaningSection = PAIR, **settings: Any) -> PrepareSection:
        section = made(pairs, cleaning=cleaning, record_places=True, **settings)
        prepare.run(section)
        return section

    return prepared


def test_precision_and_recall_against_sets_of_shingles(run: Callable[..., PrepareSection]) -> None:
    """Only what is within 0.1 of the threshold is judged wrong, now and then."""
    pairs = _with_edits(5000)
    nearest = _nearest(_sets(pairs))
    found = np.zeros(len(pairs), dtype=bool)
    found[_dropped(run(pairs), len(pairs))] = True
    wanted = nearest >= 0.8
    assert 500 < wanted.sum() < 1000, "there is something to be found, and most is not"
    assert (found & wanted).sum() / found.sum() > 0.95, "precision"
    assert (found & wanted).sum() / wanted.sum() > 0.95, "recall"
    assert found[nearest >= 0.9].mean() > 0.995
    assert not found[nearest < 0.7].any()


@pytest.mark.parametrize("similarity", [0.5, 0.6, 0.75, 0.9, 0.95, 1.0])
def test_pairs_at_the_threshold_share_a_band(similarity: float) -> None:
    rows = near.num_rows(similarity)
    assert 1 - (1 - similarity**rows) ** (near.SLOTS // rows) >= 0.99
    assert near.least_agreement(1.0) == near.SLOTS


@pytest.mark.parametrize("of", [3, pytest.param(7, marks=pytest.mark.slow)])
def test_the_bytes_are_the_same_for_any_parts_partitions_and_processes(
    of: int, made: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpora, "SPAN_PAIRS", 1000)
    pairs = _with_edits(1500)
    cleaning = CleaningSection(near_duplicates="pair", duplicates="drop")
    section = made(pairs + pairs[:100], cleaning=cleaning, pairs_per_block=16, blocks_per_shard=20, workers=2)
    prepare.run(section)
    wanted = contents(tmp_path / "out")
    assert _report(section)["near duplicate"] > 100
    assert _report(section)["duplicate"] == 100 + 1500 - len(set(pairs))
    monkeypatch.setattr(near, "ENTRIES", 3000)
    monkeypatch.setattr(near, "MEMBERS", 7)
    section = dataclasses.replace(section, output=str(tmp_path / "in-parts"), workers=1)
    for number in range(of, 0, -1):
        prepare.run(section, part=Part(number, of))
    prepare.run(section, merge=True)
    assert contents(tmp_path / "in-parts") == wanted


def test_killed_between_partitions(made: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was found, or a span's file, is damaged until it goes on."""
    monkeypatch.setattr(corpora, "SPAN_PAIRS", 1000)
    monkeypatch.setattr(near, "ENTRIES", 3000)
    section = made(_with_edits(600), cleaning=PAIR)
    prepare.run(section)
    wanted = contents(tmp_path / "out")
    section = dataclasses.replace(section, output=str(tmp_path / "again"))
    joined = near.NearJob.join

    def kill(job: near.NearJob, partition: int) -> int:
        if partition == 3:
            raise KeyboardInterrupt
        return joined(job, partition)

    with monkeypatch.context() as patch:
        patch.setattr(near.NearJob, "join", kill)
        with pytest.raises(KeyboardInterrupt):
            prepare.run(section)
    [folder] = (path.parent for path in (tmp_path / ".again.preparing").glob("*/spill"))
    for path in (folder / "near" / "000001.npz", folder / "spill" / "00000001.near"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"1 of 3 encoded spans .*00000001.near: is not as it was written"):
        prepare.run(section)
    prepare.run(section)
    assert contents(tmp_path / "again") == wanted


LONG = "the committee on fisheries met again on thursday in the small hall to hear what the members had to say"


def test_of_a_chain_the_first_stays(run: Callable[..., PrepareSection], tmp_path: Path) -> None:
    """b is near a and c near b, though not near a: whatever has an earlier one near it goes, also if that went."""
    a, b, c = LONG, LONG.replace("small", "grand"), LONG.replace("small hall", "grand room")
    chain: Pairs = [(a, "un"), (b, "un"), (c, "un"), ("quite another line of text that is long enough", "deux")]
    sets = _sets(chain)
    assert len(sets[0] & sets[2]) / len(sets[0] | sets[2]) < 0.8
    assert _dropped(run(chain), 4) == [1, 2]
    again = run([chain[0], chain[2], chain[1]], output=str(tmp_path / "again"))
    assert _dropped(again, 3) == [2]


def test_what_is_exactly_the_same_is_a_duplicate_first(run: Callable[..., PrepareSection], tmp_path: Path) -> None:
    """Where duplicates are kept, they are near duplicates."""
    pairs: Pairs = [(LONG, "un"), ("x", "deux"), (LONG, "un"), (LONG.upper(), "un"), (LONG, "un")]
    section = run(pairs, CleaningSection(near_duplicates="pair", duplicates="drop"), output=str(tmp_path / "one"))
    assert _kept(section) == [0, 1]
    assert (_report(section)["duplicate"], _report(section)["near duplicate"]) == (2, 1)
    section = run(pairs, output=str(tmp_path / "two"))
    assert _kept(section) == [0, 1]
    assert _report(section)["near duplicate"] == 3


def test_by_source_or_target(run: Callable[..., PrepareSection], tmp_path: Path) -> None:
    other = "le groupe des pêcheurs se réunit une fois encore jeudi"
    pairs: Pairs = [(LONG, other), (LONG + ".", "tout autre chose"), ("something else altogether", other + " !")]
    for of, gone in (("source", [1]), ("target", [2]), ("pair", [])):
        cleaning = CleaningSection(near_duplicates=of)  # type: ignore[arg-type]
        assert _dropped(run(pairs, cleaning, output=str(tmp_path / of)), 3) == gone


def test_short_lines_and_lines_without_spaces(run: Callable[..., PrepareSection]) -> None:
    pairs: Pairs = [
        ("Page 12", "p. 12"),
        ("Page 13", "p. 13"),
        ("page 12", "P. 12"),  # near the first
        ("no", "non"),
        ("on", "oui"),
        ("他们昨天在北京大学的图书馆里看了一整天的书", "ils ont lu"),
        ("他们昨天在北京大学的图书馆里看了一整天的报", "ils ont lu"),  # near the one before
        ("她们明天去上海参观博物馆然后坐火车回家吃饭", "elles vont"),
    ]
    assert _dropped(run(pairs), len(pairs)) == [2, 6]


def test_a_million_variants_take_no_million_comparisons(
    run: Callable[..., PrepareSection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All go by the first few that share a band with them."""
    monkeypatch.setattr(near, "LEADERS", 2)
    pairs: Pairs = [(f"{LONG} no. {number}", "un") for number in range(3000)]
    assert _kept(run(pairs)) == [0]


def test_signatures_are_the_same_everywhere() -> None:
    """With others the same corpus would give another dataset."""
    signed = near.Signer("pair", 0.8).sign([LONG, "Ünïcode", "中文", "\u200b"], ["x", "y", "z", ""])
    assert signed.has_shingles.tolist() == [True, True, True, False], "what is invisible is near nothing"
    digest = hashlib.sha256(signed.slots.tobytes() + signed.bands.tobytes()).hexdigest()
    assert digest[:16] == "83c8add731f6ca0b"


def test_without_the_package_or_with_another_version(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, said in (
        (None, r"the package rensa is missing; install it with `pip install zeromt\[near\]`"),
        (types.SimpleNamespace(RMinHash=type("RMinHash", (), {"ALGORITHM_VERSION": 3})), "rensa has version 3 of its"),
    ):
        near._signing.cache_clear()
        monkeypatch.setitem(sys.modules, "rensa", module)
        with pytest.raises(UserError, match=rf"^prepare.cleaning.near_duplicates: {said}"):
            prepare.run(corpus([("a", "b")], cleaning=PAIR))
    near._signing.cache_clear()
