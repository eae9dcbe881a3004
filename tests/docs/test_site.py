"""The site that `make docs` makes: every page is in it, whole in any window, and nothing comes from elsewhere."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.browser import CHROMIUM, Browser
from tests.conftest import REPO
from tests.docs.pages import pages

_MARKDOWN = MarkdownIt("commonmark").enable("table")
"""As GitHub reads a page, near enough."""
WIDEST = ["architecture", "index", "gpu-report-h100", "other-systems", "reference"]
"""Pages with the longest lines of code and the widest tables."""
CODE, TABLES = "article pre > code", "article .md-typeset__table, article table"
CUT = """[...document.querySelectorAll('{}')]
    .filter((part) => part.scrollWidth > part.clientWidth + 1).map((part) => part.innerText.slice(0, 80))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It builds without a warning; a page without a place in mkdocs.yml is one too."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)],
        cwd=REPO,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.strip()) == (0, ""), done.stderr
    return folder


def counted(html: str) -> dict[str, int]:
    """List items, rows, code blocks, headings and pictures of a page."""
    return {tag: len(re.findall(rf"<{tag}[ >/]", html)) for tag in ("li", "tr", "pre", "h2", "h3", "img")}


def test_each_page_looks_as_in_the_repository(site: Path) -> None:
    of_root = {"README": "index", "CONTRIBUTING": "contributing"}
    for path in pages():
        place = of_root.get(path.stem) or path.relative_to(REPO / "docs").with_suffix("").as_posix()
        built = (site / f"{place}.html").read_text().partition("<article")[2].partition("</article>")[0]
        assert counted(built) == counted(_MARKDOWN.render(path.read_text())), (
            f"{place}: the repository shows it otherwise"
        )


def test_each_tutorial_begins_with_its_minutes_and_what_one_has_at_its_end() -> None:
    for path in (REPO / "docs" / "tutorials").glob("*.md"):
        first = path.read_text().split("\n\n")[1].replace("\n", " ")
        assert path.stem == "index" or re.fullmatch(r"\*Takes .+\. At the end you have .+\.\*", first), path.name


def test_no_page_asks_anybody_for_anything(site: Path) -> None:
    """Scripts, styles and pictures are the site's own; the theme fetches a script for a page that has a diagram."""
    found = [
        f"{path.name}: {asked}"
        for path in site.rglob("*.html")
        for asked in re.findall(
            r"<(?:script|img|iframe|source)[^>]* src=\"?(?:https?:)?//[^>]*|"
            r"<link[^>]* rel=\"?(?:stylesheet|preconnect)[^>]* href=\"?(?:https?:)?//[^>]*|class=\"?mermaid",
            path.read_text(),
        )
    ]
    assert found == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; on Debian: apt-get install chromium")
@pytest.mark.parametrize("names", [WIDEST, pytest.param(None, marks=pytest.mark.slow)], ids=["widest", "all"])
def test_code_and_tables_are_whole_on_a_desk_and_on_a_telephone(
    site: Path, browser: Browser, names: list[str] | None
) -> None:
    found = {}
    for path in sorted(site.rglob("*.html")) if names is None else [site / f"{name}.html" for name in names]:
        for width in (1280, 390):
            browser.show(path, width=width, theme="light")
            asked = [e["params"] for e in browser.events if e.get("method") == "Network.requestWillBeSent"]
            assert [one["request"]["url"] for one in asked if one["request"]["url"].startswith("http")] == []
            # a table of many columns scrolls on a telephone, in its own box
            cut = browser.run(CUT.format(f"{CODE}, {TABLES}" if width == 1280 else CODE))
            if browser.run("document.scrollingElement.scrollWidth") > width:
                cut.append("the page itself")
            found[f"{path.relative_to(site)} at {width}"] = cut
    assert {page: cut for page, cut in found.items() if cut} == {}
