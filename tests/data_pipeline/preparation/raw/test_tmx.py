"""TMX against xml.dom, and its quirks one by one."""

import itertools
import tracemalloc
from pathlib import Path
from typing import Any
from xml.dom import minidom

import pytest
import zstandard

from configs import CorpusFiles, UserError
from configs.load import parse_run
from data_pipeline.preparation.raw import tmx
from data_pipeline.preparation.raw.corpus import corpus_units, read_whole
from tests.data_pipeline.preparation.raw.reading import LANGUAGES, PACKERS, Pairs, pairs_of, parts_of, read

HEAD = """<?xml version="1.0" encoding="{encoding}"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd" [<!ENTITY name "Änne">]>
<tmx version="1.4"><header creationtool="x" segtype="sentence" srclang="en" datatype="plaintext">
<prop type="from">seg</prop><note>a <!-- no segment --> note</note></header>
<body>
"""
TAIL = "</body></tmx>\n"
CODES = [("en", "fr"), ("EN-gb", "FR_fr"), ("eng", "fra"), ("en_US", "fre"), ("fr-CA", "en")]
SEGMENTS = [
    "plain",
    "&lt;b&gt; &amp; &name; &#x20AC; &quot;",
    "",
    "<![CDATA[a < b]]> c",
    "x <!-- comment --><?pi?>y",
    "\n      set apart\n      on two lines\n    ",
    'a <bpt i="1">&lt;b&gt;</bpt>bold<ept i="1">&lt;/b&gt;</ept>.',
    'a <hi type="x">high <it pos="begin">{1}</it></hi><ph/> end<ph x="1">{2}<sub>under</sub></ph>',
    " with spaces ",
    "日本語 \U0001f600 Ω",
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


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize(("encoding", "end"), [("utf-8", "\n"), ("utf-8-sig", "\r\n"), ("utf-16", "\r\n")])
def test_equal_to_xml_dom(tmp_path: Path, suffix: str, encoding: str, end: str) -> None:
    text = HEAD.format(encoding=encoding.removesuffix("-sig")) + made(53) + TAIL
    content = text.replace("\n", end).encode(encoding)
    (tmp_path / f"a.tmx{suffix}").write_bytes(PACKERS[suffix](content))
    files = parse_run({"prepare": {"train": {"tmx": [f"a.tmx{suffix}"]}}}).prepare.train
    wanted = by_dom(content)
    for size in (4, 100):
        found = parts_of(files, tmp_path, size)
        assert [pair for _, _, raw in found for pair in pairs_of(raw)] == wanted
        assert not any(part.is_seekable or span.left_out for part, span, _ in found)
    assert found[0][1].pairs == 53


def write(folder: Path, units: str, **settings: Any) -> CorpusFiles:
    """A file with these units."""
    (folder / "a.tmx").write_text(HEAD.format(encoding="utf-8") + units + TAIL, encoding="utf-8")
    return CorpusFiles(tmx=["a.tmx"], **settings)


def test_markup_as_tags(tmp_path: Path) -> None:
    source = 'a <bpt i="1">&lt;b&gt;</bpt>bold<ept i="1">&lt;/b&gt;</ept> <hi>high<ph/></hi> <ph x="1">{2}</ph><g/>'
    files = write(tmp_path, unit(("lang", "en", source), ("lang", "fr", '<it pos="end"/>b')), inline_markup="keep")
    assert read(files, tmp_path) == [("a <b>bold</b> <hi>high<ph/></hi> {2}<g/>", "<it/>b")]


def test_what_makes_no_pair_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = [
        unit(("lang", "en", "a")),
        unit(("lang", "fr", "b"), ("lang", "de", "c")),
        "<tu/>",
        unit(("no", "en", "a")),
    ]
    doubled = unit(
        ("lang", "en", "first"), ("lang", "en", "second"), ("lang", "fr-CA", "un"), ("lang", "fr-BE", "deux")
    )
    files = write(tmp_path, "".join([*alone, doubled, *alone[:2], made(9), alone[0]]))
    for size in (1, 2, 100):
        found = parts_of(files, tmp_path, size)
        assert pairs_of(found[0][2])[0] == ("first", "un")
        assert sum(raw.num_pairs for _, _, raw in found) == 10
        counts: dict[str, int] = {}
        for reason, count in itertools.chain.from_iterable(span.left_out.items() for _, span, _ in found):
            counts[reason] = counts.get(reason, 0) + count
        assert counts == {
            "units without en": 4,
            "units without fr": 3,
            "further translations of a unit into en": 1,
            "further translations of a unit into fr": 1,
        }
    read_whole(files, str(tmp_path), LANGUAGES)
    assert "a.tmx: left out units without en: 4\n" in capsys.readouterr().out


def test_the_variety_that_is_asked_for(tmp_path: Path) -> None:
    units = unit(("lang", "pt-PT", "autocarro"), ("lang", "pt-BR", "ônibus"), ("lang", "x-old", "bus"))
    for fields, wanted in (
        ({"source_field": "pt", "target_field": "x-old"}, ("ônibus", "bus")),
        ({"source_field": "pt_PT", "target_field": "pt-br"}, ("autocarro", "ônibus")),
    ):
        assert read(write(tmp_path, units, **fields), tmp_path) == [wanted]


def test_properties_are_further_texts(tmp_path: Path) -> None:
    one = unit(("lang", "en", "a"), ("lang", "fr", "b"), more='<prop type="score">0.5</prop>')
    inner = one.replace("<seg>a", '<prop type="score-bicleaner">0.7</prop><seg>a')
    write(tmp_path, one + inner + unit(("lang", "en", "c"), ("lang", "fr", "d")))
    extra = {"score": "score", "cleaner": "score-bicleaner"}
    [part] = corpus_units(CorpusFiles(tmx=["a.tmx"]), str(tmp_path), extra, LANGUAGES)
    [(_, raw)] = part.stream(0, 0, 10)
    assert raw.pairs().extra == {"score": ["0.5", "0.5", ""], "cleaner": ["", "0.7", ""]}


FAULTS = [
    (HEAD.format(encoding="utf-8") + unit(("lang", "en", "a")), "line 8 is no XML: no element found"),
    (HEAD.format(encoding="utf-8") + "<tu><tuv></tu>", "line 6 is no XML: mismatched tag"),
    (HEAD.format(encoding="utf-8") + "<tu>&nbsp;", "line 6 is no XML: undefined entity"),
    (HEAD.format(encoding="utf-8") + "\n\x01", "line 7 is no XML: not well-formed"),
    (HEAD.format(encoding="big5"), "cannot be read: multi-byte encodings are not supported"),
    (HEAD.format(encoding="utf-8") + TAIL, "has no unit with en and fr"),
    (HEAD.format(encoding="utf-8") + unit(("lang", "de", "a"), ("lang", "fr", "b")) + TAIL, "fr; its .*: de, fr "),
    ("", "line 1 is no XML: no element found"),
    ("a\tb\n", "line 1 is no XML: syntax error"),
    (
        "<!DOCTYPE tmx [" + "".join(f"<!ENTITY a{n + 1} \"{f'&a{n};' * 10}\">" for n in range(9))
        + "<!ENTITY a0 \"aaaaaaaaaa\">]><tmx><body><tu><tuv lang=\"en\"><seg>&a9;</seg></tuv></tu></body></tmx>",
        "is no XML: limit on input amplification factor",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), FAULTS, ids=range(len(FAULTS)))
def test_faults(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.tmx").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=f"a.tmx: .*{message}") as caught:
        read(CorpusFiles(tmx=["a.tmx"]), tmp_path)
    assert "\n" not in str(caught.value)


def test_memory_is_that_of_a_span(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = []
    for count in (6000, 18_000):
        files = write(tmp_path, made(count))
        tracemalloc.start()
        for _ in corpus_units(files, str(tmp_path), languages=LANGUAGES)[0].stream(0, 0, 100):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
    monkeypatch.setattr(tmx, "MAX_UNIT_BYTES", 1 << 20)
    bomb = zstandard.ZstdCompressor().compress(b"<tmx><body><tu><tuv><seg>" + bytes(b"a" * (3 << 20)))
    (tmp_path / "b.tmx.zst").write_bytes(bomb)
    with pytest.raises(UserError, match=r"b\.tmx\.zst: has no end of a unit in 1 MiB"):
        read(CorpusFiles(tmx=["b.tmx.zst"]), tmp_path)
