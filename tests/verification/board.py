"""TensorBoard in a headless Chromium, as pictures: `python -m tests.verification.board RUNS PICTURES`."""

import argparse
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.browser import Browser

PAGES = {"custom_scalars": 3600, "timeseries": 1600, "hparams": 900, "text": 5200, "images": 1800}
"""Of TensorBoard, and how high a window shows them."""
WIDTH = 1280
DEEP_TEXT = """(() => { let text = ''; const walk = (node) => {
  if (node.nodeType === 3 && node.parentElement && !['STYLE', 'SCRIPT'].includes(node.parentElement.tagName))
    text += node.textContent + ' ';
  if (node.shadowRoot) walk(node.shadowRoot);
  for (const child of node.childNodes || []) walk(child); }; walk(document.body); return text; })()"""
"""All text of a page, that of its web components too."""
OPENED = """(() => { let opened = 0; const walk = (node) => {
  if (node.tagName === 'BUTTON' && node.classList.contains('heading') && !node.hasAttribute('open-button')) {
    node.click(); opened++; }
  if (node.shadowRoot) for (const child of node.shadowRoot.children) walk(child);
  for (const child of node.children || []) walk(child); }; walk(document.body); return opened; })()"""
"""Opens the groups that a page shows closed, which are all but the first two."""
TO_THE_RIGHT = """(() => { let moved = 0; const walk = (node) => {
  if (node.scrollWidth > node.clientWidth + 20 && getComputedStyle(node).overflowX !== 'visible') {
    node.scrollLeft = node.scrollWidth; moved += node.scrollLeft; }
  if (node.shadowRoot) for (const child of node.shadowRoot.children) walk(child);
  for (const child of node.children || []) walk(child); }; walk(document.body); return moved; })()"""
"""Scrolls tables to their last columns: how far. In HParams the metrics stand there."""


@contextmanager
def serving(runs: Path) -> Iterator[str]:
    """TensorBoard over a folder of runs; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(runs), "--port", str(port)]
    more = ["--host", "127.0.0.1", "--load_fast", "false", "--reload_interval", "1"]
    server = subprocess.Popen([*command, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(240):
            try:
                if b"[]" not in urllib.request.urlopen(f"{address}/data/runs", timeout=60).read():
                    break
            except OSError:
                pass
            time.sleep(0.5)
        yield address
    finally:
        server.kill()
        server.wait()


def look(browser: Browser, address: str, page: str, *, seconds: float, height: int) -> str:
    """Show a page and give it time to draw; its text."""
    browser.call("Emulation.setDeviceMetricsOverride", width=WIDTH, height=height, deviceScaleFactor=1, mobile=False)
    browser.call("Page.navigate", url="about:blank")
    browser.call("Page.navigate", url=f"{address}/#{page}")
    time.sleep(seconds)
    if page in ("text", "images") and browser.run(OPENED):
        time.sleep(seconds / 2)
    text: str = browser.run(DEEP_TEXT)
    return text


def main(argv: Sequence[str] | None = None) -> int:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, help="a folder of runs")
    parser.add_argument("pictures", type=Path, help="where the PNGs go")
    parser.add_argument("--seconds", type=float, default=8.0, help="that a page has to draw")
    parser.add_argument("--expect", help="a text that the page of texts must show letter by letter")
    arguments = parser.parse_args(argv)
    arguments.pictures.mkdir(parents=True, exist_ok=True)
    with serving(arguments.runs) as address, Browser() as browser:
        for page, height in PAGES.items():
            text = look(browser, address, page, seconds=arguments.seconds, height=height)
            path = arguments.pictures / f"{page}.png"
            browser.picture(path)
            print(f"{path}: {len(text)} characters")
            if page == "hparams":
                assert browser.run(TO_THE_RIGHT) > 0, "the columns of the metrics are not to be had"
                time.sleep(1)
                browser.picture(path.with_name("hparams_metrics.png"))
            if page == "text" and arguments.expect is not None:
                assert arguments.expect in text, f"{page}: {arguments.expect!r} is not shown letter by letter"
            dialogs = [e for e in browser.events if e.get("method") == "Page.javascriptDialogOpening"]
            assert not dialogs, f"{page}: somebody's text was run: {dialogs}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
