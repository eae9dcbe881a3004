"""Every link within the repository leads to a file, and every anchor to a heading."""

import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.conftest import REPO
from tests.docs.pages import pages

OTHERS = [
    REPO / name
    for name in (
        "CHANGELOG.md",
        "SECURITY.md",
        "benchmarks/README.md",
        "tests/faults/README.md",
        *(f"{folder}/README.md" for folder in ("configs", "data_pipeline", "launcher", "model", "trainer", "zeromt")),
        "data/tatoeba-en-fr/README.md",
    )
]


_MARKDOWN = MarkdownIt("commonmark").enable("table")
"""As GitHub reads a page, near enough."""


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors that GitHub gives a page's headings."""
    tokens = _MARKDOWN.parse(path.read_text(encoding="utf-8"))
    found: dict[str, int] = {}
    names = set()
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            plain = "".join(child.content for child in inline.children or [])
            slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
            number = found.get(slug, 0)
            found[slug] = number + 1
            names.add(f"{slug}-{number}" if number else slug)
    return frozenset(names)


def links(path: Path) -> list[str]:
    """Targets of a page's links, without those of its code."""
    found = []
    for token in _MARKDOWN.parse(path.read_text(encoding="utf-8")):
        for child in token.children or []:
            target = child.attrGet("href") or child.attrGet("src")
            if isinstance(target, str):
                found.append(target)
    return found


@pytest.mark.parametrize("path", [*pages(), *OTHERS], ids=lambda path: path.relative_to(REPO).as_posix())
def test_code_ends_where_it_should(path: Path) -> None:
    """A line of a code span that begins like a list item ends the paragraph, and the backtick is a letter."""
    tokens = _MARKDOWN.parse(path.read_text(encoding="utf-8"))
    texts = [child.content for token in tokens for child in token.children or [] if child.type == "text"]
    assert [text for text in texts if "`" in text] == []


@pytest.mark.parametrize("path", [*pages(), *OTHERS], ids=lambda path: path.relative_to(REPO).as_posix())
def test_links_hold(path: Path) -> None:
    for target in links(path):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), f"{target}: no such file"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{target}: no such heading; there are {sorted(anchors(file))}"


def test_a_broken_anchor_is_noticed() -> None:
    assert "folders" in anchors(REPO / "docs" / "architecture.md")
    assert "folder" not in anchors(REPO / "docs" / "architecture.md")


def test_the_readme_is_short_and_begins_with_its_purpose() -> None:
    text = (REPO / "README.md").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("# ")]  # comments of code stand above it
    assert len(lines) <= 120
    assert text.index("make install") < text.index("zeromt prepare")
    assert re.search(r"!\[[^\]]+\]\(docs/[\w./-]+\.svg\)", text)


def test_the_terms_of_the_glossary_stand_once() -> None:
    """A term has one row; its meaning may name others."""
    text = (REPO / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = [row.split("|")[1].strip() for row in text.splitlines() if re.match(r"\| [^-|]", row)]
    terms = [term for term in terms if term != "term"]
    assert len(terms) > 40
    assert len(terms) == len(set(terms))


def test_the_log_lists_its_entries() -> None:
    """Each once, in their order: merging two branches loses lines."""
    text = (REPO / "docs" / "LOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^- \[(.*)\]\(#", text, re.M) == re.findall(r"^## (.*)$", text, re.M)
