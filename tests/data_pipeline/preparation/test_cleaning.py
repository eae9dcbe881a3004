import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs import CleaningSection, PrepareSection, UserError
from configs.components import Corpus
from data_pipeline.preparation.cleaning import Cleaned, Cleaner, filters_of


def _cleaner(
    held_out: Sequence[tuple[str, str]] = (), languages: tuple[str, str] = ("en", "fr"), **settings: Any
) -> Cleaner:
    source, target = languages
    corpus = Corpus(source_language=source, target_language=target, held_out=held_out)
    return Cleaner(filters_of(PrepareSection(cleaning=CleaningSection(**settings))), corpus)


def _clean(*pairs: tuple[str, str], **settings: Any) -> Cleaned:
    return _cleaner(**settings).clean([s for s, _ in pairs], [t for _, t in pairs])


def _dropped(cleaned: Cleaned) -> dict[str, list[int]]:
    return {name: rows.tolist() for name, rows in cleaned.dropped.items()}


def test_without_filters_only_empty_pairs_go() -> None:
    pairs = [("a\x07", "a\x07"), ("", "x"), ("\u3000\t", "y"), ("z", "\u2028"), ("\ufb01", "\ufb01")]
    cleaned = _clean(*pairs)
    assert (cleaned.sources, cleaned.targets) == (["a\x07", "\ufb01"], ["a\x07", "\ufb01"])
    assert cleaned.rows.tolist() == [0, 4]
    assert _dropped(cleaned) == {"empty": [1, 2, 3]}
    assert cleaned.changed == {}
    lines = ["one", "two"]
    assert _cleaner().clean(lines, lines).sources is lines


def test_a_pair_counts_for_the_first_filter_that_takes_it() -> None:
    cleaned = _clean(
        ("x", "\x07"),
        ("same", " same\u00a0"),
        ("x" * 20, "x" * 20),
        ("y" * 11, "х"),
        ("привет", "short"),
        ("ok" * 5, "\tgoodgoodg"),
        control_characters="remove",
        identical="drop",
        max_characters=10,
        source_scripts=["Latin"],
    )
    assert _dropped(cleaned) == {
        "empty": [0],
        "identical": [1, 2],
        "too many characters": [3],
        "source script": [4],
    }
    assert (cleaned.sources, cleaned.targets, cleaned.rows.tolist()) == (["ok" * 5], [" goodgoodg"], [5])


def test_normalisation_comes_first() -> None:
    pairs = [("ﬁne", "fine"), ("e\u0301", "x"), ("plain", "plain text"), ("\u00a0", "y")]
    kept = _clean(*pairs, normalization="nfkc", identical="drop")
    assert (kept.sources, kept.changed) == (["é", "plain"], {"normalization": 3})
    assert _dropped(kept) == {"empty": [3], "identical": [0]}
    kept = _clean(*pairs, normalization="nfc")
    assert (kept.sources, kept.changed) == (["ﬁne", "é", "plain"], {"normalization": 1})


JOINERS = "\u200c\u200d"
VISIBLE = {ord(c) for c in "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"}


def test_control_characters_are_what_unicodedata_says() -> None:
    """Of every assigned code point."""
    codes = [c for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)) not in ("Cs", "Cn")]
    lines = [f"a{chr(c)}b" for c in codes]
    removed = _cleaner(control_characters="remove").clean(lines, ["x"] * len(lines))
    assert removed.rows.tolist() == list(range(len(lines)))
    bad = set()
    for row, (code, line) in enumerate(zip(codes, removed.sources, strict=True)):
        character, category = chr(code), unicodedata.category(chr(code))
        if category == "Cc" and character.isspace():
            assert line == "a b"
        elif category == "Cc" or (category == "Cf" and character not in JOINERS and code not in VISIBLE):
            assert line == "ab", hex(code)
        else:
            assert line == lines[row], hex(code)
        if line != lines[row] and character != "\t":
            bad.add(row)
    assert len(bad) > 200
    assert removed.changed == {"control characters": len(bad) + 1}


@pytest.mark.parametrize(
    ("scripts", "line", "is_kept"),
    [
        (["Latin"], "Voilà", True),
        (["Latin"], "привет", False),
        (["Latin"], "abприв", False),
        (["Latin"], "abпр", True),
        (["Latin"], "42 % — 。٣ 😀", True),  # no letters
        (["Latin"], "ー", True),  # a letter that Hiragana and Katakana share
        (["Katakana"], "コーヒー", True),
        (["Han", "Hiragana", "Katakana"], "東京タワーへ行く", True),
        (["Han"], "東タワへ", False),
        (["Hani"], "東京", True),
        (["Devanagari"], "हिन्दी", True),
        (["Hangul"], "한국어", True),
        (["cyrillic"], "Ёлка", True),
        (["Latin"], "ａｂｃ", True),
        (["Cyrillic"], "Mockba", False),  # letters that look alike
    ],
)
def test_scripts(scripts: list[str], line: str, is_kept: bool) -> None:
    for side in ("source", "target"):
        pair = (line, "1") if side == "source" else ("1", line)
        cleaned = _clean(pair, ("2", "2"), **{f"{side}_scripts": scripts})
        assert _dropped(cleaned)[f"{side} script"] == ([] if is_kept else [0])


MIXED = st.text(st.sampled_from("aÉßzЖяёΑωß中文กขي 1.é\u0301\t"), max_size=12)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("Lattin", r"source_scripts: Lattin: .*Latin"),
        ("Common", r"source_scripts: Common: .*"),
        ("Zzzz", "source_scripts: Zzzz: "),
    ],
)
def test_scripts_that_cannot_be_used(script: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"^prepare\.cleaning\.{message}"):
        _cleaner(source_scripts=["Latin", script])
    with pytest.raises(UserError, match=r"^prepare\.cleaning\.target_scripts"):
        _cleaner(target_scripts=[script])


HELD_OUT = [("Hello, World", "Bonjour"), ("  Straße ", "ﬁn\u00a0 de rue"), ("", "seul"), ("No", "Non")]


@pytest.mark.parametrize(("mode", "dropped"), [("pair", [0, 2]), ("side", [0, 1, 2, 3, 4, 5])])
def test_held_out_overlap(mode: str, dropped: list[int]) -> None:
    pairs = [
        ("hello,  world", "BONJOUR "),
        ("Hello, World", "Salut"),
        ("STRASSE", "fin de rue"),
        ("No", "Bonjour"),
        ("no", "x"),
        ("y", "SEUL"),
        ("Bonjour", "Hello, World"),
    ]
    cleaned = _clean(*pairs, held_out=HELD_OUT, held_out_overlap=mode)
    assert _dropped(cleaned)["held-out overlap"] == dropped


TEXTS = st.one_of(MIXED, st.sampled_from(["No", "no ", "Non", "a\u200bb", "ﬁn", "\x85", "no\u00a0"]))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(TEXTS, TEXTS), max_size=15),
    st.sampled_from(["pair", "side"]),
)
def test_a_pair_does_not_depend_on_its_neighbours(pairs: list[tuple[str, str]], mode: Any) -> None:
    cleaner = _cleaner(
        HELD_OUT,
        normalization="nfkc",
        control_characters="remove",
        identical="drop",
        max_characters=6,
        source_scripts=["Latin", "Greek"],
        target_scripts=["Cyrillic", "Latin"],
        held_out_overlap=mode,
    )
    whole = cleaner.clean([s for s, _ in pairs], [t for _, t in pairs])
    alone = [cleaner.clean([s], [t]) for s, t in pairs]
    assert whole.sources == [s for one in alone for s in one.sources]
    assert whole.targets == [t for one in alone for t in one.targets]
    assert whole.rows.tolist() == [row for row, one in enumerate(alone) if len(one.rows)]
    for name, rows in whole.dropped.items():
        assert rows.tolist() == [row for row, one in enumerate(alone) if len(one.dropped[name])]
    for name, count in whole.changed.items():
        assert count == sum(one.changed[name] for one in alone)
    assert sum(map(len, whole.dropped.values())) + len(whole.rows) == len(pairs)


ENGLISH = "The committee will meet again on Thursday to discuss the proposal."
FRENCH = "Le comité se réunira de nouveau jeudi pour discuter de la proposition."
GERMAN = "Der Ausschuss wird am Donnerstag erneut zusammentreten, um den Vorschlag zu beraten."


def test_languages() -> None:
    pytest.importorskip("py3langid")
    pairs = [(ENGLISH, FRENCH), (FRENCH, ENGLISH), (ENGLISH, GERMAN), (GERMAN, FRENCH), ("Paris", "Paris"), ("42", "-")]
    cleaned = _clean(*pairs, language_identification=True)
    assert _dropped(cleaned)["language"] == [1, 2, 3]
    assert _dropped(_clean(*pairs, language_identification=True, min_language_probability=1.0))["language"] == []
    assert _dropped(_clean((ENGLISH, FRENCH), languages=("en_GB", "fr-CA"), language_identification=True)) == {
        "empty": [],
        "language": [],
    }
    norwegian = "Komiteen skal møtes igjen på torsdag for å drøfte forslaget."
    for code in ("no", "nb", "nn", "nob_Latn"):
        kept = _clean((ENGLISH, norwegian), languages=("en", code), language_identification=True)
        assert len(kept.rows) == 1
