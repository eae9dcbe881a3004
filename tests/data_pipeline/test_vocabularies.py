"""Vocabularies against one another, held against what the old tokenizer does with whole lines."""

from typing import Any

import pytest

from configs import TokenizerSection
from data_pipeline.preparation.tokenizing import train_tokenizer
from data_pipeline.tokenizer import UNK_ID, Side, Tokenizer, match
from tests.conftest import bundled

ENGLISH, FRENCH = (bundled(language, slice(0, 400)).decode().splitlines() for language in ("en", "fr"))
OTHERS = [bundled(language, slice(500, 900)).decode().splitlines() for language in ("en", "fr")]


def tokenizer(*, other: bool = False, **settings: Any) -> Tokenizer:
    section = TokenizerSection(**{"vocab_size": 300, "threads": 1, **settings})
    return train_tokenizer(section, *(OTHERS if other else (ENGLISH, FRENCH)))


def vocabulary(one: Tokenizer, side: Side) -> list[str]:
    return one.source_vocabulary() if side == "source" else one.target_vocabulary()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"vocab_size": 400, "other": True}),
        ({"kind": "unigram"}, {"byte_fallback": True, "vocab_size": 500, "other": True}),
        ({"byte_fallback": True, "vocab_size": 500}, {"kind": "unigram", "other": True}),
        ({"vocabulary": "separate"}, {"other": True}),
        ({}, {"vocabulary": "separate", "other": True, "kind": "unigram"}),
        ({"normalization": "nmt_nfkc_cf"}, {"other": True, "tags": [">>fra<<"]}),
    ],
)
def test_pieces_are_kept_or_cut(old: dict[str, Any], new: dict[str, Any]) -> None:
    before, now = tokenizer(**old), tokenizer(**new)
    for side in ("source", "target"):
        matched = match(before, now, side)
        theirs, ours = vocabulary(before, side), vocabulary(now, side)
        assert sorted([*matched.kept, *matched.cut, *matched.unknown]) == list(range(len(ours)))
        assert all(ours[number] == theirs[row] for number, row in matched.kept.items())
        assert {ours[n] for n in matched.kept} == set(ours) & set(theirs)
        encode = before.encode_source if side == "source" else before.encode_target
        begins = {n: ours[n].removeprefix("\u2581") for n in matched.cut if ours[n].startswith("\u2581")}
        begins = {n: text for n, text in begins.items() if text and "\u2581" not in text}
        for (number, _), row in zip(begins.items(), encode(list(begins.values())), strict=True):
            assert list(matched.cut[number]) == [piece for piece in row if piece != UNK_ID]
        for number, cut in matched.cut.items():
            assert UNK_ID not in cut
            if "cf" not in str(old) and not ours[number].startswith("<0x"):
                spelled = "".join(theirs[piece] for piece in cut)
                assert spelled == ours[number] or "<0x" in spelled or encode([ours[number]])[0].count(UNK_ID)


def test_what_cannot_be_spelled_is_new() -> None:
    words = ["\u03b1\u03b2\u03b3 \u03b4", "\u03b2\u03b1 \u03b3"] * 50
    greek = train_tokenizer(TokenizerSection(vocab_size=16, threads=1), words, ["a b", "ba c"] * 50)
    matched = match(tokenizer(), greek, "source")
    pieces = greek.source_vocabulary()
    assert {pieces[n] for n in matched.unknown} >= {"\u03b1", "\u03b2", "\u03b3", "\u03b4"}
    assert matched.counts()["new"] == len(matched.unknown)


def test_tags_of_the_same_language_are_one() -> None:
    before, now = tokenizer(tags=[">>fr<<", ">>deu<<"]), tokenizer(tags=[">>fra<<", ">>spa<<"], other=True)
    matched = match(before, now, "source")
    assert matched.kept[now.tag_id(">>fra<<")] == before.tag_id(">>fr<<")
    assert list(matched.cut[now.tag_id(">>spa<<")]) == [before.tag_id(">>fr<<"), before.tag_id(">>deu<<")]
