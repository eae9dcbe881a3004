"""A run in tmux, as pictures by a headless Chromium: `python -m tests.verification.terminal PICTURES`."""

import argparse
import html
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.browser import Browser
from tests.conftest import environment, zeromt
from tests.small import small_runs
from tests.waiting import PATIENCE, wait_until

WIDTHS = (80, 120)
ROWS = 46
RUN = ("train", "small.yaml", "name=pictures", "training.max_updates=60", "evaluation.every_updates=20")
MORE = ("training.log_every=4", "training.memory_probe=false", "checkpoint.every_updates=20")
MOMENTS: Mapping[str, Callable[[str], bool]] = {
    "start": lambda text: "written to" in text,
    "training": lambda text: "step 16 " in text and "valid" not in text,
    "evaluation": lambda text: text.count("valid loss") >= 2,
    "end": lambda text: "zeromt export" in text,
}
"""What is looked at, and by which text it is known."""
COLOURS = ("#666", "#d33", "#2a2", "#b80", "#36d", "#a3a", "#099", "#ddd")
_CODE = re.compile(r"\x1b\[([0-9;]*)m")


class Terminal:
    """A tmux of its own, of so many columns."""

    def __init__(self, folder: Path, width: int, variables: Mapping[str, str]) -> None:
        self._tmux = ["tmux", "-S", str(folder / f"tmux-{width}"), "-f", "/dev/null"]
        size = ["-x", str(width), "-y", str(ROWS)]
        self._call("new-session", "-d", *size, "-c", str(folder), "env", "PS1=$ ", *_pairs(variables), "sh")

    def type(self, line: str) -> None:
        """As a person would, with Enter."""
        self._call("send-keys", line, "Enter")

    def screen(self) -> str:
        """With its colours, as escape sequences."""
        return self._call("capture-pane", "-e", "-p")

    def close(self) -> None:
        """End it and what runs in it."""
        self._call("kill-server")

    def _call(self, *arguments: str) -> str:
        done = subprocess.run([*self._tmux, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=True)
        return done.stdout


def _pairs(variables: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in variables.items()]


def page(screen: str) -> str:
    """A screen in HTML."""
    spans = []
    bold, colour = False, ""
    for number, part in enumerate(_CODE.split(screen)):
        if number % 2 == 0:
            style = f"color:{colour};" * bool(colour) + "font-weight:bold;" * bold
            spans.append(f'<span style="{style}">{html.escape(part)}</span>')
            continue
        for code in map(int, filter(None, (part or "0").split(";"))):
            bold = (bold or code == 1) and code not in (0, 22)
            colour = COLOURS[code % 10] if 30 <= code <= 37 or 90 <= code <= 97 else "" if code in (0, 39) else colour
    style = "background:#fff;color:#111;font:14px/1.2 'DejaVu Sans Mono',monospace;margin:8px"
    return f'<!doctype html><meta charset="utf-8"><pre style="{style}">{"".join(spans)}</pre>'


def wait(terminal: Terminal, is_reached: Callable[[str], bool]) -> str:
    """The first screen on which something is seen."""

    def reached() -> str | None:
        screen = terminal.screen()
        return screen if is_reached(_CODE.sub("", screen)) else None

    screen = wait_until(reached, lambda: f"{_CODE.sub('', terminal.screen())}\nwhat was to be seen")
    assert screen is not None
    return screen


def screens(place: Path, width: int) -> dict[str, str]:
    """What stands on a terminal at each moment of a run, of a refusal, and of a run without colours."""
    terminal = Terminal(place, width, environment())
    command = shlex.join(zeromt(*RUN, *MORE))
    try:
        terminal.type(f"clear; {command}")
        found = {name: wait(terminal, reached) for name, reached in MOMENTS.items()}
        terminal.type(f"clear; {shlex.join(zeromt('train', 'small.yaml', 'optimizer.lr=fast', 'model.d_modle=8'))}")
        found["error"] = wait(terminal, lambda text: "zeromt: error" in text)
        terminal.type(f"clear; export NO_COLOR=1; {command} name=plain")
        found["NO_COLOR"] = wait(terminal, MOMENTS["end"])
        assert not re.search(r"\x1b\[(3[0-9]|9[0-7])", found["NO_COLOR"]), "colours in spite of NO_COLOR"
    finally:
        terminal.close()
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pictures", type=Path, help="where the PNGs go")
    arguments = parser.parse_args(argv)
    arguments.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        for width in WIDTHS:
            place = Path(shutil.copytree(small_runs(), Path(folder) / str(width)))
            for name, screen in screens(place, width).items():
                longest = max(len(_CODE.sub("", line)) for line in screen.splitlines())
                assert longest <= width, f"{name}: a line of {longest} columns"
                path = place / "page.html"
                path.write_text(page(screen), encoding="utf-8")
                browser.show(path, width=9 * width + 30, theme="light")
                browser.picture(arguments.pictures / f"{width}-{name}.png")
                print(f"{width} columns, {name}: {len(screen.split())} words")
    return 0


if __name__ == "__main__":
    sys.exit(main())
