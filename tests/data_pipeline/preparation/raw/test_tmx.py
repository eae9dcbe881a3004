"""TMX against xml.dom, and its quirks one by one."""

import itertools
from pathlib import Path
from typing import Any
from xml.dom import minidom

import pytest

from configs import CorpusFiles
from data_pipeline.preparation.corpus import corpus_units, read_whole
from tests.data_pipeline.preparation.raw.reading import LANGUAGES, Pairs, named, pairs_of, spans_of

HEAD = """<?xml version="1.0" encoding="{encoding}"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header creationtool="x" segtype="sentence" srclang="en" datatype="plaintext">
<prop type="from">seg</prop><note>a <!-- no segment --> note</note></header>
<body>
"""
TAIL = "</body></tmx>\n"
CODES = [("en", "fr"), ("EN-gb", "FR_fr"), ("eng", "fra"), ("en_US", "fre"), ("fr-CA", "en")]
SEGMENTS = [
    "plain",
    "&lt;b&gt; &amp; &#x20AC; &quot;",
    "",
    "<![CDATA[a < b]]> c",
    "x <!-- comment --><?pi?>y",
    "\n      set apart\n      on two lines\n    ",
    'a <bpt i="1">&lt;b&gt;</bpt>bold<ept i="1">&lt;/b&gt;</ept>.',
    'a <hi type="x">high <it pos="begin">{1}</it></hi><ph/> end<ph x="1">{2}<sub>under</sub></ph>',
    " with spaces ",
    "é Ω",
]


def unit(*translations: tuple[str, str, str], more: str = "") -> str:
    """A unit of (attribute, code, segment)."""
    inner = "".join(f'<tuv {name}="{code}"><seg>{text}</seg></tuv>\n' for name, code, text in translations)
    return f'<tu tuid="1">{more}{inner}</tu>\n'


def made(count: int) -> str:
    """Units with any forms of codes, in any order, some with other languages beside."""
    units = []
    for number in range(count):
        codes = CODES[number % len(CODES)]
        attribute = ("xml:lang", "lang")[number % 2]
        sides = [(attribute, code, SEGMENTS[(number * 7 + k * 3) % len(SEGMENTS)]) for k, code in enumerate(codes)]
        units.append(unit(*[("xml:lang", "de", "fremd")][: number % 3 == 0], *sides))
    return "".join(units)


def by_dom(content: bytes) -> Pairs:
    """The pairs of a file by another parser."""
    pairs = []
    for element in minidom.parseString(content).getElementsByTagName("tu"):
        texts = {}
        for translation in element.getElementsByTagName("tuv"):
            [segment] = translation.getElementsByTagName("seg")
            code = translation.getAttribute("xml:lang") or translation.getAttribute("lang")
            texts[code.lower()[:2]] = on_one_line(without_codes(segment))
        pairs.append((texts["en"], texts["fr"]))
    return pairs


def without_codes(node: Any) -> str:
    """The text of an element."""
    texts = []
    for child in node.childNodes:
        if child.nodeType in (child.TEXT_NODE, child.CDATA_SECTION_NODE):
            texts.append(child.data)
        elif child.nodeType == child.ELEMENT_NODE and child.tagName == "hi":
            texts.append(without_codes(child))
    return "".join(texts)


def on_one_line(text: str) -> str:
    """Lines without their indentation, joined by spaces."""
    return " ".join(filter(None, map(str.strip, text.split("\n")))) if "\n" in text else text


@pytest.mark.parametrize(
    ("encoding", "end"), [("utf-8", "\n"), ("utf-8-sig", "\r\n"), ("utf-16", "\r\n"), ("iso-8859-7", "\n")]
)
def test_equal_to_xml_dom(tmp_path: Path, encoding: str, end: str) -> None:
    text = HEAD.format(encoding=encoding.removesuffix("-sig")) + made(53) + TAIL
    content = text.replace("\n", end).replace("é", "έ").encode(encoding)
    (tmp_path / "a.tmx").write_bytes(content)
    spans = spans_of(named(["a.tmx"], "tmx"), tmp_path, 4)
    assert [pair for _, _, raw in spans for pair in pairs_of(raw)] == by_dom(content)
    assert not any(span.left_out for _, span, _ in spans)


def write(folder: Path, units: str, **fields: Any) -> CorpusFiles:
    """A file with these units."""
    (folder / "a.tmx").write_text(HEAD.format(encoding="utf-8") + units + TAIL, encoding="utf-8")
    return named(["a.tmx"], "tmx", **fields)


@pytest.mark.parametrize(
    ("segment", "expected"),
    [
        ('cat<ph x="1">{1}</ph>dog', "cat dog"),
        ("cat<ph/><ph/>dog", "cat dog"),
        ("cat <ph/>dog<ph/>.", "cat dog."),
        ("un<bpt i='1'/>re<ept i='1'/>al", "unreal"),
    ],
)
def test_a_placeholder_between_words_is_a_space(segment: str, expected: str, tmp_path: Path) -> None:
    spans = spans_of(write(tmp_path, unit(("lang", "en", segment), ("lang", "fr", "b"))), tmp_path, 1)
    assert [pair for _, _, raw in spans for pair in pairs_of(raw)] == [(expected, "b")]


def test_what_makes_no_pair_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bad character leaves out its unit, and no other."""
    alone = [
        unit(("lang", "en", "a")),
        unit(("lang", "fr", "b"), ("lang", "de", "c")),
        unit(("no", "en", "a")),
        unit(("lang", "en", "&#1;"), ("lang", "fr", "b")),
        unit(("lang", "en", "&undefined;"), ("lang", "fr", "b")),
        unit(("lang", "en", "a\ufffd"), ("lang", "fr", "b")),
        unit(("lang", "en", "<hi>" * 5000 + "</hi>" * 5000), ("lang", "fr", "b")),
        "<tu><tuv></tu>",
    ]
    doubled = unit(
        ("lang", "en", "first"), ("lang", "en", "second"), ("lang", "fr-CA", "un"), ("lang", "fr-BE", "deux")
    )
    files = write(tmp_path, "".join([*alone, doubled, *alone[:2], made(9), alone[0]]))
    for size in (1, 2, 100):
        spans = spans_of(files, tmp_path, size)
        assert pairs_of(spans[0][2])[0] == ("first", "un")
        assert sum(raw.num_pairs for _, _, raw in spans) == 10
        counts: dict[str, int] = {}
        for reason, count in itertools.chain.from_iterable(span.left_out.items() for _, span, _ in spans):
            counts[reason] = counts.get(reason, 0) + count
        assert counts == {
            "units without en": 3,
            "units without fr": 3,
            "units that are no XML": 5,
            "further translations of a unit into en": 1,
            "further translations of a unit into fr": 1,
        }
    read_whole(files, str(tmp_path), LANGUAGES)
    assert "a.tmx: left out units without en: 3\n" in capsys.readouterr().out


def test_properties_are_further_texts(tmp_path: Path) -> None:
    one = unit(("lang", "en", "a"), ("lang", "fr", "b"), more='<prop type="score">0.5</prop>')
    inner = one.replace("<seg>a", '<prop type="score-bicleaner">0.7</prop><seg>a')
    files = write(tmp_path, one + inner + unit(("lang", "en", "c"), ("lang", "fr", "d")))
    [part] = corpus_units(files, str(tmp_path), {"score": "score", "cleaner": "score-bicleaner"}, LANGUAGES)
    [(_, raw)] = part.stream(0, 0, 10)
    assert raw.pairs().extra == {"score": ["0.5", "0.5", ""], "cleaner": ["", "0.7", ""]}
