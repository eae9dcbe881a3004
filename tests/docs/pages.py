"""The code blocks of README and docs/, with how each is tested.

A block of `sh` or `python` has an invisible comment before it:

    <!-- run -->                run by `make test`, in a folder with my.yaml, runs/my and more (test_blocks.folder)
    <!-- slow -->               run by `make test-slow`, after the blocks of the page before it, in the same folder
    <!-- slow a.b=c ... -->     the same; trainings get these settings too, so that they are short
    <!-- parse: REASON -->      not run, for that reason: words and options are checked

A block of `yaml` is always checked: a site's profile where its file is one, as in `# my-site.yaml`, else (a part of) a
run's configuration. One that begins with `# NAME.yaml`, as a block of any language that begins with its file's name, is
written to the folder before the blocks after it run. `toml` is parsed; `text` is to be looked at.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

from tests.conftest import REPO

LANGUAGES = {"sh", "python", "yaml", "toml", "text"}
_MARK = re.compile(r"<!-- (run|slow|parse)(?:(?:: | )(.+?))? -->\s*")
_FILE = re.compile(r"# ([\w./-]+\.\w+)\b")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A code block."""

    page: str
    line: int
    language: str
    text: str
    how: str
    more: str

    @property
    def place(self) -> str:
        """For messages."""
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """The file that it is."""
        found = _FILE.match(self.text)
        return found[1] if found else None


def pages() -> list[Path]:
    """README, CONTRIBUTING and every page of docs/, in the order of their names."""
    return [REPO / "README.md", REPO / "CONTRIBUTING.md", *sorted((REPO / "docs").rglob("*.md"))]


@cache
def blocks() -> tuple[Block, ...]:
    """All blocks, in the order of pages and lines."""
    return tuple(block for path in pages() for block in _of_page(path))


def _of_page(path: Path) -> Iterator[Block]:
    page = path.relative_to(REPO).as_posix()
    mark = None
    for token in MarkdownIt("commonmark").parse(path.read_text(encoding="utf-8")):
        if token.type in ("fence", "code_block"):
            assert token.map is not None
            yield Block(
                page=page,
                line=token.map[0] + 1,
                language=token.info.strip(),
                text=token.content,
                how=mark[1] if mark else "",
                more=(mark[2] or "") if mark else "",
            )
        mark = _MARK.fullmatch(token.content) if token.type == "html_block" else None
