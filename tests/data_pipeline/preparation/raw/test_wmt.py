"""WMT's XML against xml.dom, and its SGML, which no parser of XML reads."""

from pathlib import Path
from typing import Any
from xml.dom import minidom

import pytest

from configs import CorpusFiles, UserError
from data_pipeline.preparation.raw.corpus import corpus_units
from tests.data_pipeline.preparation.raw.reading import PACKERS, Pairs, pairs_of, parts_of, read
from trainer.evaluation.sets import read_set

SOURCE = """<srcset setid="newstest" srclang="any">
<doc sysid="ref" docid="one" genre="news" origlang="en">
<hl>
<seg id="1"> AT&T &amp; Ünter &lt;b&gt; &quot;so&quot; </seg>
</hl>
<p>
<seg id="2"></seg>
<seg id=3>on two
   lines</seg>
</p>
</doc>
<DOC docid="two">
<SEG ID="1">five < six</SEG>
</DOC>
</srcset>
"""
TARGET = """<refset setid="newstest" srclang="any" trglang="fr">
<doc sysid="ref" docid="one">
<seg id="1">un</seg><seg id="2">deux</seg>
<seg id="3">trois</seg><seg id="4">quatre</seg>
</doc>
<doc docid="two">
<seg id="2">deux</seg></doc>
</refset>
"""
PAIRS = [('AT&T & Ünter <b> "so"', "un"), ("", "deux"), ("on two lines", "trois")]


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize(("start", "end"), [("", "\n"), ("\ufeff", "\r\n")])
def test_sgml_is_paired_by_ids(tmp_path: Path, suffix: str, start: str, end: str) -> None:
    for name, text in (("src.en.sgm", SOURCE), ("ref.fr.sgm", TARGET)):
        content = (start + text.replace("\n", end)).encode()
        (tmp_path / f"{name}{suffix}").write_bytes(PACKERS[suffix](content))
    files = CorpusFiles(source=[f"src.en.sgm{suffix}"], target=[f"ref.fr.sgm{suffix}"])
    for size in (1, 10):
        found = parts_of(files, tmp_path, size)
        assert [pair for _, _, raw in found for pair in pairs_of(raw)] == PAIRS
        assert found[-1][1].left_out == {"segments without a reference": 1, "segments without a source": 2}


def test_sets_are_read_for_evaluation_too(tmp_path: Path) -> None:
    for name, text in (("src.en.sgm", SOURCE), ("ref.fr.sgm", TARGET)):
        (tmp_path / name).write_text(text)
    found = read_set(str(tmp_path / "src.en.sgm"), [str(tmp_path / "ref.fr.sgm")], place="x")
    assert found == ([source for source, _ in PAIRS], [[target for _, target in PAIRS]])
    (tmp_path / "less.sgm").write_text(TARGET.replace('id="3"', 'id="5"'))
    with pytest.raises(UserError, match=r"x: .*less\.sgm' has not the segments that .*ref\.fr\.sgm' has"):
        read_set(str(tmp_path / "src.en.sgm"), [str(tmp_path / name) for name in ("ref.fr.sgm", "less.sgm")], place="x")


def test_xml_equals_xml_dom(tmp_path: Path) -> None:
    segments = ["a &amp; b", "&lt;c&gt;", "<![CDATA[c < d]]>", "", "Ω \U0001f600", "e\n  f"]
    documents = ""
    for number in range(7):
        sides = [
            "".join(f'<p><seg id="{n + 1}">{kind} {number} {text}</seg></p>\n' for n, text in enumerate(segments))
            for kind in ("src", "hyp", "ref", "other")
        ]
        documents += (
            f'<doc origlang="en" id="d{number}"><src lang="en">{sides[0]}</src><hyp system="s">{sides[1]}'
            f'</hyp><ref lang="fr" translator="A">{sides[2]}</ref><ref lang="fr" translator="B">{sides[3]}</ref></doc>'
        )
    text = (
        f'<?xml version="1.0" encoding="utf-8"?>\n<dataset id="x"><collection id="g">{documents}</collection></dataset>'
    )
    (tmp_path / "wmt.en-fr.all.xml").write_text(text, encoding="utf-8")
    wanted: Pairs = []
    for document in minidom.parseString(text.encode()).getElementsByTagName("doc"):
        source, reference = (document.getElementsByTagName(role)[0] for role in ("src", "ref"))
        texts = [
            [" ".join(text_of(s).split()) for s in side.getElementsByTagName("seg")] for side in (source, reference)
        ]
        wanted += zip(*texts, strict=True)
    files = CorpusFiles(source=["wmt.en-fr.all.xml"], target=["wmt.en-fr.all.xml"])
    found = parts_of(files, tmp_path, 4)
    assert [pair for _, _, raw in found for pair in pairs_of(raw)] == wanted
    assert len(wanted) == 42
    assert sum(span.left_out.get("segments of further references", 0) for _, span, _ in found) == 42
    [unit] = corpus_units(files, str(tmp_path), {"document": "id", "genre": "genre"})
    [(_, raw)] = unit.stream(0, 0, 100)
    assert raw.pairs().extra == {"document": [f"d{n // 6}" for n in range(42)], "genre": [""] * 42}


def text_of(element: Any) -> str:
    """The text of an element without others in it."""
    return "".join(node.data for node in element.childNodes)


FAULTS = [
    (
        SOURCE.replace('"two"', '"2"'),
        TARGET,
        r"a.sgm: document 2 beside document two of .*b.sgm; both must have the same",
    ),
    (SOURCE, TARGET[: TARGET.index("</doc>") + 6] + "</refset>", r"document two beside no document of .*b.sgm"),
    (SOURCE.replace("id=3", "id=2"), TARGET, r"a.sgm: line 9: segment 2 of one is there twice"),
    (SOURCE, TARGET[:-10], r"b.sgm: is cut short: it has no </refset>"),
    (SOURCE, "no markup", r"b.sgm: has no element; allowed is WMT's SGML"),
    (SOURCE.replace("five", "<![x["), TARGET, r"a.sgm: line \d+ is broken: .*; allowed is WMT's SGML"),
    ("<srcset></srcset>", "<refset></refset>", r"a.sgm: is empty; it must have at least one row"),
]


@pytest.mark.parametrize(("source", "target", "message"), FAULTS, ids=range(len(FAULTS)))
def test_faults(tmp_path: Path, source: str, target: str, message: str) -> None:
    (tmp_path / "a.sgm").write_text(source, encoding="utf-8")
    (tmp_path / "b.sgm").write_text(target, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read(CorpusFiles(source=["a.sgm"], target=["b.sgm"]), tmp_path)


def test_other_encodings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.sgm").write_bytes(SOURCE.encode("latin-1"))
    with pytest.raises(UserError, match=r"a.sgm: line 1 or later is not UTF-8"):
        read(CorpusFiles(source=["a.sgm"], target=["a.sgm"]), tmp_path)
