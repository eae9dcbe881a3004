"""What each modifier makes of a text, and what is refused."""

import dataclasses
import itertools
import math
from collections import Counter

import numpy as np
import pytest

from configs import StreamSection, UserError
from configs.components import Draws, Modifier, make
from data_pipeline.order.windows import Budget
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.augment import Augmenter
from data_pipeline.stream.batch import Ragged
from data_pipeline.stream.modifiers.texts import NEIGHBOURS, mistyped
from tests.data_pipeline.stream.made import close, open_readers, read_epoch

SECTION = StreamSection(micro_batches=2, source_tokens=1000, target_tokens=1000, window_pairs=300)


def test_what_is_copied_is_the_same_on_both_sides() -> None:
    for n in range(200):
        source, target = make("modifier", "noise").change("a", "b", Draws(n))
        assert source == target
        assert 1 <= len(source.split(" ")) <= 8
        assert max(map(len, source.split(" "))) <= 8
    assert make("modifier", "prefix", text="<bt>").change("a", "b", Draws(1)) == ("<bt> a", "b")
    assert make("modifier", "merge").merge(("a.", "b."), ("c.", "d."), Draws(1)) == ("a. c.", "b. d.")


def test_typos_are_one_error_a_word() -> None:
    spellings = Counter(mistyped("Word", Draws(n)) for n in range(4000))
    swapped = {"oWrd", "Wrod", "Wodr"}
    doubled, dropped = {"WWord", "Woord", "Worrd", "Wordd"}, {"ord", "Wrd", "Wod", "Wor"}
    assert swapped | doubled | dropped <= spellings.keys()
    near = spellings.keys() - swapped - doubled - dropped - {"Word"}
    assert {(a, b) for word in near for a, b in zip("Word", word, strict=True) if a != b} <= {
        (a, b.upper() if a.isupper() else b) for a in "Word" for b in NEIGHBOURS[a.lower()]
    }
    assert len(near) == 8
    assert all(b in NEIGHBOURS[a] for b in NEIGHBOURS for a in NEIGHBOURS[b]), "neighbours are each other's"
    assert [mistyped(word, Draws(3)) for word in ("a", "12", "", "。")] == ["a", "12", "", "。"]


CODE = [
    "<b>here</b>",
    '<a href="my page">',
    "<br/>",
    "<name1>",
    "&nbsp;",
    "{username}",
    "{{ user name }}",
    "${home}",
    "%(count)s",
    "%1$s",
    "%s",
    "https://example.org/page",
    "www.example.org",
    "example.org",
    "info@example.org",
    "B2B",
    "my_file.txt",
    "C:\\Users",
]


@pytest.mark.parametrize("code", CODE)
def test_typos_leave_code_as_the_target_has_it(code: str) -> None:
    """Markup, placeholders, addresses and codes stand identically on both sides, and are to be copied."""
    typos = make("modifier", "typos", words=0.5)
    pairs = {typos.change(f"Please see {code}, and go on", code, Draws(n)) for n in range(300)}
    assert all(code in source and target == code for source, target in pairs)
    assert len(pairs) > 50, "other words have errors"
    assert {typos.change(code, code, Draws(n)) for n in range(50)} == {(code, code)}, "nothing else is there to hit"


def test_case_leaves_code_as_it_is() -> None:
    for code in CODE[1:-5]:
        source, target = make("modifier", "upper_case").change(f"see {code} now", f"voir {code}", Draws(1))
        assert code in source
        assert code in target
        assert source != f"see {code} now"
    [tagged, _] = make("modifier", "upper_case").change("<b>here</b>", "", Draws(1))
    assert tagged == "<b>HERE</b>", "what is between tags is text"


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
            {"kind": "noise"},
            r"stream\.augment\.0: noise: the source vocabulary has no pieces for .* and \d+ more",
        ),
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
    with pytest.raises(UserError, match="prefix: >>web<< is not a piece of the tokenizer, whose tags are >>bt<<"):
        open_readers([spelling], section)


def test_texts_that_cannot_be_spelled_stay_plain(small: Dataset) -> None:
    """Capitals that no piece has."""
    section = dataclasses.replace(SECTION, augment=[make("modifier", "upper_case", probability=1.0)])
    readers = open_readers([small], section)
    batches = read_epoch(readers)
    close(readers)
    texts = [text for m in batches for text in small.tokenizer.decode_source(m.source.tolist())]
    assert not any("⁇" in text for text in texts)
    num_capitals = sum(text == text.upper() for text in texts)
    assert len(texts) / 2 < num_capitals < len(texts)


def test_tags_stay_before_whatever_follows_them_in_the_list(spelling: Dataset) -> None:
    """Two are two pieces; a case or noise behind them leaves them alone."""
    kinds = ("prefix", "prefix", "upper_case", "noise")
    fields = {"prefix": {"text": ">>bt<<"}}
    modifiers = [make("modifier", kind, probability=1.0, **fields.get(kind, {})) for kind in kinds]
    readers = open_readers([spelling], dataclasses.replace(SECTION, augment=modifiers))
    [batch, *_] = read_epoch(readers, 1)
    close(readers)
    tags = batch.source == spelling.tokenizer.tag_id(">>bt<<")
    assert tags[:, :2].all(axis=1).sum() == tags.sum() / 2 > 0
    assert all(text.startswith(">>bt<< >>bt<< ") for text in spelling.tokenizer.decode_source(batch.source[tags[:, 0]]))


def augmented(dataset: Dataset, pairs: list[tuple[str, str]], *modifiers: Modifier) -> tuple[list[str], list[bool]]:
    """The sources of a window of pairs, and whether each pair has changed."""
    tokenizer = dataset.tokenizer
    source = Ragged.of(tokenizer.encode_source([source for source, _ in pairs]))
    target = Ragged.of(tokenizer.encode_target([target for _, target in pairs]))
    augmenter = Augmenter(
        list(enumerate(modifiers)), tokenizer, seed=1, dataset=0, longest=(90, 90), budget=Budget.of(SECTION)
    )
    numbers = np.arange(len(pairs))
    sides = zip((source, target), augmenter(source, target, numbers, 0 * numbers), strict=True)
    rows = [[(old[row].tolist(), new[row].tolist()) for row in range(len(pairs))] for old, new in sides]
    is_changed = [first[0] != first[1] or second[0] != second[1] for first, second in zip(*rows, strict=True)]
    return tokenizer.decode_source([new for _, new in rows[0]]), is_changed


def test_pairs_of_different_languages_are_not_merged(spelling: Dataset) -> None:
    pairs = [(">>bt<< Go.", "Va."), (">>bt<< Run.", "Cours."), ("Eat.", "Mange.")]
    sources, is_changed = augmented(spelling, pairs, make("modifier", "merge", probability=1.0))
    assert sources == [">>bt<< Go. Run.", ">>bt<< Run.", "Eat."]
    assert is_changed == [True, False, False]


def test_a_tag_that_is_text_stays_text(spelling: Dataset) -> None:
    """Behind another tag, or a space, it is none; encoded again it would be."""
    pairs = [(">>bt<< >>bt<< Go.", "Va."), (" >>bt<< Go.", "Va."), (">>bt<< Go.", "Va.")]
    sources, is_changed = augmented(spelling, pairs, make("modifier", "upper_case", probability=1.0))
    assert sources == [">>bt<< >>bt<< Go.", ">>bt<< Go.", ">>bt<< GO."]
    assert is_changed == [False, False, True]


@pytest.mark.parametrize(("dropout", "least", "most"), [(0.0, 0, 0), (0.1, 120, 200), (1.0, 150, 200)])
def test_bpe_dropout(spelling: Dataset, dropout: float, least: int, most: int) -> None:
    """Other pieces for the same text, drawn anew in each pass."""
    tokenizer = spelling.tokenizer
    texts = tokenizer.decode_source(tokenizer.encode_source(spelling.held_out("valid")[0][:200]))
    modifier = make("modifier", "bpe_dropout", dropout=dropout)
    sources, is_changed = augmented(spelling, [(text, text) for text in texts], modifier)
    assert sources == texts
    assert least <= sum(is_changed) <= most


def test_bpe_dropout_of_all_gives_characters() -> None:
    modifier = make("modifier", "bpe_dropout", dropout=1.0)
    assert modifier.cut("abc", {"ab": -1.0, "abc": -2.0}, Draws(1)) == ["a", "b", "c"]


def test_unigram_segmentations_are_drawn_by_their_probabilities() -> None:
    word, scores, alpha = "abab", {"a": -1.0, "b": -2.0, "ab": -1.5, "ba": -3.0, "aba": -2.5}, 0.5
    chances = {}
    for cuts in itertools.product([False, True], repeat=3):
        places = [0, *(n + 1 for n, is_cut in enumerate(cuts) if is_cut), 4]
        pieces = tuple(word[begin:end] for begin, end in itertools.pairwise(places))
        if scores.keys() >= set(pieces):
            chances[pieces] = math.exp(alpha * sum(scores[piece] for piece in pieces))
    modifier = make("modifier", "unigram_sampling", alpha=alpha)
    counts = Counter(tuple(modifier.cut(word, scores, Draws(number * 7919))) for number in range(10_000))
    assert counts.keys() == chances.keys()
    expected = {pieces: 10_000 * chance / sum(chances.values()) for pieces, chance in chances.items()}
    chi_squared = sum((counts[pieces] - wanted) ** 2 / wanted for pieces, wanted in expected.items())
    assert (len(expected), chi_squared < 20.5) == (6, True)  # of 5, p = 0.001
