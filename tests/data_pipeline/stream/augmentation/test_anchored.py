"""Inline tags and placeholders: what stands on both sides carries the same on both."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from configs import StreamSection, UserError
from configs.components import Draws, kinds, make
from configs.components.data import order_warnings
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.modifiers.anchors import anchors
from tests.data_pipeline.stream.made import open_readers

TAG = re.compile(r"<(/?)(\w+)(/?)>")
PLACEHOLDER = re.compile(r"<(?:num|name)\d+>")
_COPIED = [
    "Anna",
    "Paris",
    "B-52",
    "mp3",
    "NATO",
    "iPhone",
    "7",
    "1,000.5",
    "2025-11-25",
    "١٢",
    "€20",
    "(Zoë)",
    "«Łódź»",
]
_OTHERS = ["a", "dog", "chien", "On", "I", "de", "l'eau", "年", "在北京", "हिन्दी", "...", "-", "&", "2019年", "ﬀ", "İ"]
SIDES = st.lists(st.sampled_from([*_COPIED, *_OTHERS]), max_size=12).map(" ".join)
PAIRS = st.tuples(SIDES, SIDES)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Anna met Bob in Paris.", "Bob a vu Anna à «Paris»!", "Anna Bob Paris"),
        ("On Monday we pay 1,000.50 euros", "On paye 1,000.50 euros lundi", "1,000.50"),
        ("He paid. On 5 May On", "Il paye. On 5 mai", "5"),  # twice
        ("We ask: Die or live?", "Wir fragen: Die", ""),  # behind punctuation
        ("Hello, dear Anna", "Salut, Anna", "Anna"),
        ("Hello, Anna", "Salut, Anna", ""),
        ("NATO met", "NATO a vu", "NATO"),
        ("Attack On Titan 2", "Attack On Titan 2", "2"),
        ("The B-52 and the mp3", "Le B-52 et le mp3", "B-52 mp3"),
        ("an iPhone of 2019 in Berlin", "2019年在Berlin买了iPhone手机", "iPhone 2019 Berlin"),
        ("20 € and €30", "20€ et 30 €", "20 30"),
        ("I saw I", "X", ""),
        ("so <b>Anna</b> <Bob/> sleeps", "<i>Anna</i> dort <Bob/>", "Anna"),
        ("<b>On</b> and", "<b>On</b> a", ""),
        ("Hi {user1}, %(Count2)s", "Salut {user1}, %(Count2)s", ""),
        ('<a href="page2.html">B-52</a>', '<a href="page2.html">B-52</a>', "B-52"),
        ("see https://example.org/2 .", "voir https://example.org/2", "https://example.org/2"),
        ("", "a", ""),
    ],
)
def test_what_is_surely_aligned(source: str, target: str, expected: str) -> None:
    found = anchors(source, target)
    assert [source[slice(*one.source)] for one in found] == expected.split()
    assert [target[slice(*one.target)] for one in found] == expected.split()


@given(PAIRS, st.integers(0, 2**64 - 1))
def test_tags_are_balanced_and_alike_and_the_text_stays(pair: tuple[str, str], state: int) -> None:
    modifier = make("modifier", "inline_tags", max_words=5)
    found = modifier.change(*pair, Draws(state))
    assert found == modifier.change(*pair, Draws(state))
    assert tuple(TAG.sub("", side) for side in found) == pair
    aligned = anchors(*pair)
    ours, theirs = (_tagged(side) for side in found)
    assert [tag for tag, _, _ in ours] == [tag for tag, _, _ in theirs]
    assert bool(ours) == bool(aligned)
    for (_, *span), (_, *other) in zip(ours, theirs, strict=True):
        inside = [n for n, one in enumerate(aligned) if span[0] <= one.source[0] and one.source[1] <= span[1]]
        assert inside == [n for n, one in enumerate(aligned) if other[0] <= one.target[0] and one.target[1] <= other[1]]
        assert [aligned[n].target for n in inside] == sorted(aligned[n].target for n in inside)
        for side, (begin, end) in zip(pair, (span, other), strict=True):
            assert len(side[begin:end].split(" ")) <= 5
            assert side[begin:end].strip() == side[begin:end]


def _tagged(text: str) -> list[tuple[str, int, int]]:
    """The tags in order, each with its span in the text without tags; all are balanced, and none is inside another."""
    found: list[tuple[str, int, int]] = []
    opened: tuple[str, int] | None = None
    removed = 0
    for match in TAG.finditer(text):
        closes, name, is_alone = match.groups()
        place, removed = match.start() - removed, removed + len(match[0])
        if is_alone:
            assert opened is None
            found.append((match[0], place, place))
        elif not closes:
            assert opened is None
            opened = name, place
        else:
            assert opened is not None
            assert opened[0] == name
            assert opened[1] < place
            found.append((f"<{name}>", opened[1], place))
            opened = None
    assert opened is None
    return found


@given(PAIRS, st.sampled_from(["numbers", "names", "both"]), st.integers(1, 3))
def test_placeholders_stand_for_the_same_on_both_sides(pair: tuple[str, str], of: str, most: int) -> None:
    modifier = make("modifier", "placeholders", of=of, most=most)
    found = modifier.change(*pair, Draws(0))
    assert found == modifier.change(*pair, Draws(1)), "nothing is drawn"
    assert found == modifier.change(*found, Draws(0)), "what has placeholders stays"
    values: dict[str, str] = {}
    for kind in ("num", "name"):
        wanted = [one for one in anchors(*pair) if one.is_number == (kind == "num")]
        if of in ("both", {"num": "numbers", "name": "names"}[kind]):
            values |= {f"<{kind}{n + 1}>": pair[0][slice(*one.source)] for n, one in enumerate(wanted[:most])}
    for side, plain in zip(found, pair, strict=True):
        assert sorted(PLACEHOLDER.findall(side)) == sorted(values), "once each"
        assert PLACEHOLDER.sub(lambda match: values[match[0]], side) == plain
    order = [int(name.strip("<>numae")) for name in PLACEHOLDER.findall(found[0]) if name.startswith("<num")]
    assert order == sorted(order)


def test_both_in_one_pair() -> None:
    """Tags first: a placeholder can stand inside them; the other way round placeholders stay untagged."""
    pair = ("Then Anna paid 5 euros", "Puis Anna paye 5 euros")
    tags, placeholders = make("modifier", "inline_tags", tags=["x"], max_tags=1), make("modifier", "placeholders")
    found = {placeholders.change(*tags.change(*pair, Draws(n)), Draws(n)) for n in range(100)}
    assert ("Then <x><name1></x> paid <num1> euros", "Puis <x><name1></x> paye <num1> euros") in found
    assert ("Then <x><name1> paid <num1></x> euros", "Puis <x><name1> paye <num1></x> euros") in found
    assert ("Then <x/><name1> paid <num1> euros", "Puis <x/><name1> paye <num1> euros") in found
    assert len(found) == 7, "three places, two of them with a tag before or behind them; the third shares these"
    assert tags.change(*placeholders.change(*pair, Draws(0)), Draws(0)) == placeholders.change(*pair, Draws(0))


@pytest.mark.parametrize(
    ("augment", "warned"),
    [
        (["inline_tags", "typos"], "augment.0: inline_tags stands before typos"),
        (["typos", "placeholders", "upper_case"], "augment.1: placeholders stands before upper_case"),
        (["typos", "title_case", "inline_tags", "placeholders", "bpe_dropout"], None),
        ([("inline_tags", "x"), ("typos", "y")], None),
    ],
)
def test_an_order_that_changes_what_tags_stand_around_is_warned_of(augment: list[Any], warned: str | None) -> None:
    """Such lists have been trained with, so that none is refused."""
    of = [one if isinstance(one, tuple) else (one, "x") for one in augment]
    section = StreamSection(augment=[make("modifier", kind, datasets=[path]) for kind, path in of])
    assert not list(section.problems())
    found = list(order_warnings(section.augment))
    assert (found[0].startswith(warned) and len(found) == 1) if warned else not found


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "inline_tags"}, r"stream\.augment\.0: inline_tags: the source vocabulary has no pieces for .*</b>"),
        (
            {"kind": "placeholders"},
            r"stream\.augment\.0: placeholders: the source vocabulary .* <name1>",
        ),
        ({"kind": "placeholders", "of": "numbers"}, r"no pieces for <num1> .* prepare\.tokenizer\.byte_fallback=true"),
    ],
)
def test_refused_where_they_cannot_be_spelled(small: Dataset, fields: dict[str, str], message: str) -> None:
    section = StreamSection(augment=[make("modifier", **fields)])
    with pytest.raises(UserError, match=message):
        open_readers([small], section)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "inline_tags", "tags": []}, "tags: is empty; name at least one, as b"),
        ({"kind": "inline_tags", "tags": ["<b>"]}, "tags: '<b>' is no name of a tag"),
        ({"kind": "placeholders", "name": "<num{}>"}, "name: <num{}> is that of numbers too; give another"),
    ],
)
def test_fields_that_contradict(fields: dict[str, Any], message: str) -> None:
    [problem] = make("modifier", **fields).problems()
    assert problem.startswith(message)


@pytest.mark.parametrize("form", ["<num>", "{}", "x{}", "{}x", "<{}{}>", "<a {}>", "<1{}>", "<{}1>"])
def test_forms_that_could_not_be_told_apart(form: str) -> None:
    with pytest.raises(ValidationError, match="number"):
        TypeAdapter(kinds("modifier")["placeholders"]).validate_python({"kind": "placeholders", "number": form})
