"""One word for one thing: words that docs/glossary.md has replaced stand neither in the code nor on the pages."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPO

_NOUN = r"(a|the|its|their|whose|same|least|own|large|small|each|one|rank's|lane's|dataset's)"
REPLACED = {
    r"\b(end|begin)[ _]marks?\b": "EOS, BOS",
    rf"\b{_NOUN} share(s\b|[ .,](of|is|and|in|on|that|for)\b)|\bshares? of\b": "part, fraction, shard",
    r"(?-i:\b(?!TOKEN_)[A-Z]+_SHARES?\b)": "fraction; figures of metrics.jsonl keep their names",
    r"\bso many times as fast\b": "speed-up",
    r"\bmatrix products?\b": "matmul",
    r"\b(broken|damaged|bad) blocks?\b": "corrupt block",
    r"\b(blocks?|updates?) (is|are|was|were) left out\b": "skipped",
    r"\bleaves? out (so many|these|the) (blocks|updates)\b": "skips",
    r"\blog windows?\b": "interval",
    r"\bgoes? on where it was\b": "resumes",
    r"\bis ended and named\b": "killed and reported",
    r"\bbatch of jobs\b|\bsections? of a rank\b": "job; activity",
    r"\bbatch systems?\b": "scheduler",
    r"\bwindows? of (the )?logs?\b": "interval",
    r"\bend(ed)? by force\b": "killed",
    r"\bgone on from\b": "resumed from",
    r"\bshared? out\b": "divided, sharded",
    r"\bblind to case\b": "ignoring case",
    r"\bround in circles\b": "loop",
    r"Error: so it is\b": "the condition under which it is raised",
    r"; allowed is `pip install|; allowed is (both|a divisor)\b": "install it with; give both; must divide",
}
"""What is not written any more, and what is written instead. The verb ('ranks share a file system') stays."""
HISTORY = ("CHANGELOG.md", "docs/LOG.md", "docs/glossary.md", "tests/test_words.py")
"""What tells of earlier words, and what lists them."""


def pages() -> Iterator[Path]:
    """Every Python module and every page."""
    settings = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))
    for folder in (*settings["tool"]["importlinter"]["root_packages"], "benchmarks", "tests", "docs"):
        yield from (REPO / folder).rglob("*.py")
        yield from (REPO / folder).rglob("*.md")
    yield from REPO.glob("*.md")


def test_replaced_words_are_gone() -> None:
    found = []
    for path in pages():
        name = path.relative_to(REPO).as_posix()
        if name in HISTORY:
            continue
        text = path.read_text(encoding="utf-8")
        for pattern, better in REPLACED.items():
            for match in re.finditer(pattern, text, re.IGNORECASE):
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{name}:{line}: {match[0]!r}; write: {better}")
    assert found == [], "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "each row with its end mark",
        "share of 3 of the corpus",
        "a lane's share of a pass",
        "is so many times as fast",
        "the broken blocks",
        "FLOPs of matrix products",
        "lines that go round in circles",
        "UserError: so it is.",
    ],
)
def test_a_replaced_word_is_noticed(text: str) -> None:
    assert any(re.search(pattern, text, re.IGNORECASE) for pattern in REPLACED)


def test_the_terms_of_the_glossary_stand_once() -> None:
    """A term has one row; its meaning may name others."""
    text = (REPO / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = [row.split("|")[1].strip() for row in text.splitlines() if re.match(r"\| [^-|]", row)]
    terms = [term for term in terms if term != "term"]
    assert len(terms) > 40
    assert len(terms) == len(set(terms))
