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
def test_links_hold(path: Path) -> None:
    for target in links(path):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), f"{target}: no such file"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{target}: no such heading; there are {sorted(anchors(file))}"
