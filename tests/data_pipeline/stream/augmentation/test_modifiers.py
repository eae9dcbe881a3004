"""What each modifier makes of a text, and what is refused."""

import dataclasses
from collections import Counter

import pytest

from configs import StreamSection, UserError
from configs.components import Draws, make
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.modifiers.typos import NEIGHBOURS, mistyped
from tests.data_pipeline.stream.made import close, open_readers, read_epoch

SECTION = StreamSection(micro_batches=2, source_tokens=1000, target_tokens=1000, window_pairs=300)


@pytest.mark.parametrize(
    ("kind", "pair", "expected"),
    [
        ("upper_case", ("a Dog's straße", "un élan"), {("A DOG'S STRASSE", "UN ÉLAN")}),
        ("title_case", ("don't eat", "ne mange pas"), {("Don't Eat", "Ne Mange Pas")}),
        ("end_punctuation", ("Who?!", "Qui ?"), {("Who", "Qui")}),
        ("end_punctuation", ("Who?", "Qui"), {("Who?", "Qui")}),
        ("end_punctuation", ("He said 'go.'", "Il dit « va. »"), {("He said 'go.'", "Il dit « va. »")}),
        ("end_punctuation", ("行け。", "Go."), {("行け", "Go")}),
    ],
)
def test_texts(kind: str, pair: tuple[str, str], expected: set[tuple[str, str]]) -> None:
    assert {make("modifier", kind).change(*pair, Draws(n)) for n in range(50)} == expected


def test_what_is_copied_is_the_same_on_both_sides() -> None:
    for n in range(200):
        source, target = make("modifier", "noise").change("a", "b", Draws(n))
        assert source == target
        assert 1 <= len(source.split(" ")) <= 8
        assert max(map(len, source.split(" "))) <= 8
        for kind in ("emoji", "url"):
            source, target = make("modifier", kind).change("a dog", "un chien", Draws(n))
            [added] = {source.replace("a dog", "").strip(), target.replace("un chien", "").strip()}
            assert added
            assert source.startswith(added) == target.startswith(added)
    assert make("modifier", "prefix", text="<bt>").change("a", "b", Draws(1)) == ("<bt> a", "b")
    assert make("modifier", "merge").merge(("a.", "b."), ("c.", "d."), Draws(1)) == ("a. c.", "b. d.")


def test_typos_are_one_error_a_word() -> None:
    found = Counter(mistyped("Word", Draws(n)) for n in range(4000))
    swapped = {"oWrd", "Wrod", "Wodr"}
    doubled, dropped = {"WWord", "Woord", "Worrd", "Wordd"}, {"ord", "Wrd", "Wod", "Wor"}
    assert swapped | doubled | dropped <= found.keys()
    near = found.keys() - swapped - doubled - dropped - {"Word"}
    assert {(a, b) for word in near for a, b in zip("Word", word, strict=True) if a != b} <= {
        (a, b.upper() if a.isupper() else b) for a in "Word" for b in NEIGHBOURS[a.lower()]
    }
    assert len(near) > 10
    assert all(b in NEIGHBOURS[a] for b in NEIGHBOURS for a in NEIGHBOURS[b]), "neighbours are each other's"
    assert [mistyped(word, Draws(3)) for word in ("a", "12", "", "。")] == ["a", "12", "", "。"]


def test_draws_are_even() -> None:
    """And those of SplitMix64, whose first number from state 0 is known."""
    assert Draws(0).bits() == 0xE220A8397B1DCDAF
    draws = Draws(7)
    counts = Counter(draws.below(10) for _ in range(10_000))
    assert sum((n - 1000) ** 2 / 1000 for n in counts.values()) < 28  # chi-squared of 9, p = 0.001
    assert not any(draws.chance(0.0) for _ in range(100))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"kind": "emoji"},
            r"stream\.augment\.0: emoji: the source vocabulary has no pieces for .* and \d+ more; prepare the data "
            r"with prepare\.tokenizer\.byte_fallback=true",
        ),
        ({"kind": "noise"}, r"stream\.augment\.0: noise: the source vocabulary has no pieces for"),
        (
            {"kind": "prefix", "text": "龍"},
            r"stream\.augment\.0: prefix: the source vocabulary has no pieces for 龍",
        ),
        (
            {"kind": "unigram_sampling"},
            r"stream\.augment\.0: unigram_sampling: is for unigram tokenizers, and tokenizer\.model is a bpe one",
        ),
    ],
)
def test_refused(small: Dataset, fields: dict[str, str], message: str) -> None:
    section = dataclasses.replace(SECTION, augment=[make("modifier", **fields)])
    with pytest.raises(UserError, match=message):
        open_readers([small], section)


def test_a_tag_that_is_no_piece_is_refused(spelling: Dataset) -> None:
    section = dataclasses.replace(SECTION, augment=[make("modifier", "prefix", text=">>web<<")])
    with pytest.raises(
        UserError, match=r"prefix: >>web<< is no piece of the tokenizer, whose tags are >>bt<<; prepare"
    ):
        open_readers([spelling], section)


def test_texts_that_cannot_be_spelled_stay_plain(small: Dataset) -> None:
    """Capitals that no piece has: the pair falls back, and is counted."""
    section = dataclasses.replace(SECTION, augment=[make("modifier", "upper_case", probability=1.0)])
    readers = open_readers([small], section)
    batches = read_epoch(readers)
    close(readers)
    texts = [text for m in batches for text in small.tokenizer.decode_source(m.source.tolist())]
    assert not any("⁇" in text for text in texts)
    assert readers[0].num_fell_back > 0
    assert readers[0].num_augmented > readers[0].num_fell_back
    assert sum(text == text.upper() for text in texts) >= readers[0].num_augmented


def test_they_apply_in_the_order_of_the_list(spelling: Dataset) -> None:
    """And the tag of a prefix is one piece."""
    tag = make("modifier", "prefix", text=">>bt<<", probability=1.0)
    mark = make("modifier", "prefix", text="mark", probability=1.0)
    upper = make("modifier", "upper_case", probability=1.0)
    begins = Counter[str]()
    for modifiers in ([mark, upper, tag], [upper, mark, tag]):
        readers = open_readers([spelling], dataclasses.replace(SECTION, augment=modifiers))
        [batch, *_] = read_epoch(readers, 1)
        close(readers)
        assert (batch.source[:, 0] == spelling.tokenizer.tag_id(">>bt<<")).sum() == batch.num_augmented
        texts = spelling.tokenizer.decode_source(batch.source.tolist())
        begins.update(text.split()[1] for text in texts if text.startswith(">>bt<<"))
    assert begins.keys() == {"MARK", "mark"}
