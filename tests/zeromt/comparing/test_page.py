"""The page in a real browser: nothing is fetched, nothing fails, and text of others is text."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.zeromt.comparing.browser import CHROMIUM, Browser
from tests.zeromt.comparing.conftest import HOSTILE, Planted, Zeromt
from tests.zeromt.comparing.test_text import ALL

NAME = "<img src=x onerror=alert(3)> | \u202eold"
"""Of a run's folder."""
SHOWN = NAME.replace("\u202e", r"\u202e")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; on Debian: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


@pytest.fixture(scope="module")
def page(planted: Planted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of three runs, one of them with a hostile name, and of a set with hostile text."""
    from zeromt.cli.main import main

    shutil.copytree(planted.root / planted.runs[1], planted.root / "runs" / NAME)
    path = tmp_path_factory.mktemp("page") / "page.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(planted.root)
        runs = (*planted.runs, f"runs/{NAME}")
        given = ("--set", planted.option, "--set", "dataset", *ALL)
        assert main(["compare", *runs, *given, "--html", str(path)]) == 0
    return path


def told(browser: Browser, *methods: str) -> list[Any]:
    return [event["params"] for event in browser.events if event.get("method") in methods]


@needs_chromium
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_whole_at_every_width_and_theme(
    browser: Browser, page: Path, tmp_path: Path, width: int, theme: str
) -> None:
    browser.show(page, width=width, theme=theme)
    assert [one["request"]["url"] for one in told(browser, "Network.requestWillBeSent")] == [page.as_uri()]
    assert told(browser, "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded") == []
    assert told(browser, "Page.javascriptDialogOpening") == []
    assert browser.run("document.scrollingElement.scrollWidth") <= width, "nothing is wider than the window"
    assert browser.run("document.querySelectorAll('main img, main script').length") == 0
    drawn = browser.run("[...document.querySelectorAll('figure')].map((f) => f.querySelectorAll('canvas').length)")
    assert len(drawn) >= 4
    assert set(drawn) == {1}
    legends = browser.run("[...document.querySelectorAll('figure')].map((f) => f.querySelectorAll('.u-series').length)")
    assert set(legends) == {4}, "an axis and three runs"
    darkness = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).every((c) => c < 128)"
    assert browser.run(darkness) == (theme == "dark")
    assert browser.run(CONTRASTS) >= 4.5, "WCAG 2.1, AA"
    browser.picture(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000


CONTRASTS = """(() => {
  const light = (c) => { c = c / 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const of = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = of(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  const texts = 'h1, h2, h3, p, td, th, dt, dd, mark, a, label, figcaption';
  return Math.min(...[...document.querySelectorAll(texts)].map((e) => {
    const [a, b] = [luminance(of(getComputedStyle(e).color)), luminance(behind(e))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05); }));
})()"""
"""The least of all contrasts of text."""


@needs_chromium
def test_its_policy_stops_what_is_not_its_own(browser: Browser, page: Path, tmp_path: Path) -> None:
    """Also where text were taken for more than text; and what the test above looks at would show it."""
    smuggled = (
        "<main><script>window.smuggled = 1</script><img src='http://127.0.0.1:9/x' onerror='window.smuggled = 2'>"
    )
    changed = tmp_path / "changed.html"
    changed.write_text(page.read_text(encoding="utf-8").replace("<main>", smuggled), encoding="utf-8")
    browser.show(changed, width=1280, theme="light")
    assert browser.run("window.smuggled === undefined")
    refused = " ".join(one["entry"]["text"] for one in told(browser, "Log.entryAdded"))
    assert "inline script" in refused
    assert "127.0.0.1:9" in refused


@needs_chromium
def test_text_of_others_is_text(browser: Browser, page: Path, planted: Planted) -> None:
    browser.show(page, width=1280, theme="light")
    shown = browser.run("[...document.querySelectorAll('dd')].map((one) => one.textContent)")
    differing = [
        i for i, (one, two) in enumerate(zip(*planted.translations, strict=True)) if one != two and i < len(HOSTILE)
    ]
    assert len(differing) >= 4
    for i in differing:
        for text in (HOSTILE[i], *(lines[i] for lines in planted.translations)):
            assert text in shown
    assert SHOWN in browser.run("document.querySelector('h1').textContent")
    assert any(
        SHOWN in name for name in browser.run("[...document.querySelectorAll('.u-label')].map((e) => e.textContent)")
    )
    tall = browser.run("Math.max(...[...document.querySelectorAll('dd')].map((one) => one.clientHeight))")
    assert tall < 300, "a long line scrolls in its own place"


@needs_chromium
def test_curves_go_by_what_is_chosen(browser: Browser, page: Path) -> None:
    browser.show(page, width=1280, theme="light")
    seen = []
    for place in range(3):
        browser.run(f"document.querySelectorAll('input[name=axis]')[{place}].click()")
        seen.append(browser.run("document.querySelector('figure .plot').getAttribute('aria-label')"))
    assert [text.partition(":")[0] for text in seen] == [
        "training loss by updates", "training loss by target tokens", "training loss by hours",
    ]  # fmt: skip
    browser.resize(390)
    browser.run("new Promise((done) => setTimeout(done, 300))")
    assert browser.run("document.scrollingElement.scrollWidth") <= 390, "a plot follows the window"
    assert told(browser, "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded") == []


def test_a_report_is_the_same_page_and_is_not_written_over_a_run(
    zeromt: Zeromt, planted: Planted, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    done = zeromt("compare", planted.runs[0], *ALL, "--html", str(path), cwd=planted.root)
    assert (done.code, done.out) == (0, "")
    text = path.read_text(encoding="utf-8")
    assert "<title>Report of small</title>" in text
    assert ">baseline<" not in text, "there is nothing to compare with"
    done = zeromt("compare", planted.runs[0], "--html", f"{planted.runs[0]}/config.yaml", cwd=planted.root)
    assert (done.code, done.out) == (2, "")
    assert "--html" in done.err
