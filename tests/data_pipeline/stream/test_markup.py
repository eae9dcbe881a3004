"""The plug-in of examples/: what stands on both sides carries the same tags or placeholders on both."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs import plugins
from configs.components import Draws, kinds, make
from configs.components.registry import FAMILIES, registered, restore
from tests.conftest import REPO

pytestmark = pytest.mark.slow
TAG, PLACEHOLDER = re.compile(r"</?\w+/?>"), re.compile(r"<x\d+>")
COPIED = ["Anna", "Paris", "B-52", "mp3", "NATO", "7", "1,000.5", "2025-11-25", "١٢", "€20", "(Zoë)", "«Łódź»"]
OTHERS = ["a", "dog", "chien", "On", "I", "de", "l'eau", "年", "在北京", "हिन्दी", "...", "-", "&amp;", "{x}", "İ"]
SIDES = st.lists(st.sampled_from([*COPIED, *OTHERS]), max_size=12).map(" ".join)


@pytest.fixture(scope="module", autouse=True)
def plugin() -> Iterator[None]:
    for family in FAMILIES:
        kinds(family)
    before = registered()
    plugins.load_named([str(REPO / "examples" / "modifiers" / "markup.py")])
    yield
    restore(before)
    plugins._loaded.clear()


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Anna met Bob in Paris.", "Bob a vu Anna à «Paris»!", "<x1> met <x2> in <x3>."),
        ("On Monday we pay 1,000.50 euros", "On paye 1,000.50 euros lundi", "On Monday we pay <x1> euros"),
        ("He paid. On 5 May On", "Il paye. On 5 mai", "He paid. On <x1> May On"),
        ("Hello, dear Anna", "Salut, Anna", "Hello, dear <x1>"),
        ("Attack On Titan 2", "Attack On Titan 2", "Attack On Titan <x1>"),
        ("so <b>Anna</b> <Bob/> sleeps", "<i>Anna</i> dort <Bob/>", "so <b><x1></b> <Bob/> sleeps"),
        ("Hi {user1}, %(Count2)s", "Salut {user1}, %(Count2)s", "Hi {user1}, %(Count2)s"),
    ],
)
def test_what_is_surely_aligned(source: str, target: str, expected: str) -> None:
    assert make("modifier", "placeholders").change(source, target, Draws(0))[0] == expected


@given(SIDES, SIDES, st.integers(0, 2**64 - 1))
def test_tags_are_balanced_and_alike_and_the_text_stays(source: str, target: str, state: int) -> None:
    tagged = make("modifier", "inline_tags", max_words=5).change(source, target, Draws(state))
    assert tuple(TAG.sub("", side) for side in tagged) == (source, target)
    ours, theirs = (TAG.findall(side) for side in tagged)
    assert ours == theirs
    opened = [tag for tag in ours if not tag.endswith("/>")]
    assert [tag.replace("<", "</") for tag in opened[::2]] == opened[1::2], "one after the other"


@given(SIDES)
def test_translations_have_what_placeholders_stand_for(source: str) -> None:
    replacement = make("modifier", "placeholders", most=3).to_translate(source)
    if replacement is not None:
        line, undo = replacement
        assert undo(line) == source
        assert undo("<x9> <x1><x1>").startswith("<x9> ")
    lost = make("modifier", "placeholders").to_translate("5 of 1,000 by 12:30")
    assert lost[0] == "<x1> of <x2> by <x3>"
    assert lost[1]("<x3> von <x1>") == "12:30 von 5"
