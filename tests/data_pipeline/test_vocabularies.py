"""Vocabularies against one another, held against what the old tokenizer does with whole lines, and new tags."""

from typing import Any

import pytest

from configs import TokenizerSection
from data_pipeline.preparation.tokenizing import existing_tokenizer, train_tokenizer
from data_pipeline.tokenizer import UNK_ID, Side, Tokenizer, match, widest
from tests.conftest import bundled

ENGLISH, FRENCH = (bundled(language, slice(0, 400)).decode().splitlines() for language in ("en", "fr"))
OTHERS = [bundled(language, slice(500, 900)).decode().splitlines() for language in ("en", "fr")]
BT = ">>bt<<"


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
        found = match(before, now, side)
        theirs, ours = vocabulary(before, side), vocabulary(now, side)
        assert sorted([*found.kept, *found.cut, *found.unknown]) == list(range(len(ours)))
        assert all(ours[number] == theirs[row] for number, row in found.kept.items())
        assert {ours[n] for n in found.kept} == set(ours) & set(theirs)
        encode = before.encode_source if side == "source" else before.encode_target
        begins = {n: ours[n].removeprefix("\u2581") for n in found.cut if ours[n].startswith("\u2581")}
        begins = {n: text for n, text in begins.items() if text and "\u2581" not in text}
        for (number, _), row in zip(begins.items(), encode(list(begins.values())), strict=True):
            assert list(found.cut[number]) == [piece for piece in row if piece != UNK_ID]
        for number, cut in found.cut.items():
            assert UNK_ID not in cut
            if "cf" not in str(old) and not ours[number].startswith("<0x"):
                spelled = "".join(theirs[piece] for piece in cut)
                assert spelled == ours[number] or "<0x" in spelled or encode([ours[number]])[0].count(UNK_ID)


def test_what_cannot_be_spelled_is_new() -> None:
    words = ["\u03b1\u03b2\u03b3 \u03b4", "\u03b2\u03b1 \u03b3"] * 50
    greek = train_tokenizer(TokenizerSection(vocab_size=16, threads=1), words, ["a b", "ba c"] * 50)
    found = match(tokenizer(), greek, "source")
    pieces = greek.source_vocabulary()
    assert {pieces[n] for n in found.unknown} >= {"\u03b1", "\u03b2", "\u03b3", "\u03b4"}
    assert found.counts()["new"] == len(found.unknown)


def test_tags_of_the_same_language_are_one() -> None:
    before, now = tokenizer(tags=[">>fr<<", ">>deu<<"]), tokenizer(tags=[">>fra<<", ">>spa<<"], other=True)
    found = match(before, now, "source")
    assert found.kept[now.tag_id(">>fra<<")] == before.tag_id(">>fr<<")
    assert list(found.cut[now.tag_id(">>spa<<")]) == [before.tag_id(">>fr<<"), before.tag_id(">>deu<<")]


class TestSpare:
    def test_a_new_tag_takes_a_spare_piece(self, tmp_path: Any) -> None:
        base = tokenizer(tags=[">>fra<<"], spare=3)
        assert base.spares == ("<spare-1>", "<spare-2>", "<spare-3>")
        assert base.source_vocab_size == 300
        base.save(tmp_path)
        section = TokenizerSection(path=str(tmp_path), tags=[">>fra<<", BT])
        found = existing_tokenizer(section)
        assert found is not None
        assert found.tags == (">>fra<<", BT)
        assert found.spares == ("<spare-2>", "<spare-3>")
        assert found.fingerprint != base.fingerprint
        again = existing_tokenizer(section)
        assert again is not None
        assert again.fingerprint == found.fingerprint, "the same tags take the same pieces"
        assert found.tag_id(BT) == base.source_vocabulary().index("<spare-1>")
        lines = [f"{BT} A dog.", ">>fra<< <spare-1> A dog.", "<spare-2>"]
        assert found.encode_source(lines)[0] == [found.tag_id(BT), *base.encode_source(["A dog."])[0]]
        assert found.encode_source(lines)[1:] == base.encode_source(lines)[1:]
        assert found.tag_id(BT) not in found.encode_source(lines)[1]

    def test_separate_vocabularies_spare_the_source_s(self) -> None:
        base = tokenizer(vocabulary="separate", spare=2)
        assert "<spare-1>" not in base.target_vocabulary()
        assert base.with_tags([BT]).tags == (BT,)

    def test_which_extends_which(self) -> None:
        base = tokenizer(spare=2)
        one, two, other = base.with_tags([BT]), base.with_tags([BT, ">>fra<<"]), base.with_tags([">>fra<<"])
        assert base.extends(base)
        assert one.extends(base)
        assert two.extends(one)
        assert not base.extends(one)
        assert not other.extends(one), "two tags for one piece"
        assert not tokenizer().extends(base)
        assert widest([base, two, one]) is two
        assert widest([one, other]) is None
        found = match(base, two, "source")
        assert found.kept == {n: n for n in range(300)}

    def test_no_dataset_s_recipe_changes(self) -> None:
        assert tokenizer().fingerprint == tokenizer(spare=0).fingerprint
