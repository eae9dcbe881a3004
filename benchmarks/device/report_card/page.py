"""The page: what is known so far, how to read it, and what follows."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.device.report_card import tables
from benchmarks.device.report_card.cells import Cell
from benchmarks.device.report_card.kept import DONE, Line

PAGE = "page.md"
SHOWN = 8
"""Last lines of what failed; the file of results has more."""
READING = """\
## How to read it

- **Target tokens/s** count target tokens without padding. **MFU** (Chowdhery et al., 2022) is FLOP/s by the formulas of
  `zeromt plan`, without padding, over the data sheet's dense bf16 rate; where the card is not in
  `model/gpus.py`, over its own best rate in square bf16 matmuls.
- **Pass** is forward and backward of a micro-batch, as a mean over twelve that have the corpus's lengths. **Host**:
  until the host has launched it all on an idle device. **Device**: time in which a kernel ran. **Both**: twelve passes
  back to back, until the device is done. **MHz**: the clock of the card's multiprocessors in training. Device near
  both: the card limits; see the dearest kernels. Otherwise host near both: launches limit, and larger
  micro-batches, fewer kernels or a faster processor help.
- **A kernel earns its place** where its milliseconds are fewer than plain torch's; it loses to plain above them. What
  counts in the end is the line of base and big: `cuda` beside `plain`.
- **Memory** is the peak of torch's allocator, beside `zeromt plan`'s for the same micro-batch; both in GiB.
- A cell that failed is at the end with its last lines, one that was skipped with its reason.
"""


def page(lines: Sequence[Line], show: Mapping[str, Any], cells: Sequence[Cell], parts: Mapping[str, str]) -> str:
    """The page in Markdown.

    Args:
        lines: all that is kept.
        show: card, code, versions of this command.
        cells: all there are.
        parts: titles by letter.
    """
    newest = _newest(lines, show)
    known: dict[str, Mapping[str, Any]] = {}
    for name, line in newest.items():
        figures = line.get("figures", {})
        known |= {f"{name} {variant}": found for variant, found in figures.get("variants", {}).items()} or {
            name: figures
        }
    done = [cell.name for cell in cells if newest.get(cell.name, {}).get("status") in DONE]
    out = [f"# What {show['card']} says of zeromt\n", _head(show, newest, f"{len(done)} of {len(cells)} cells")]
    out += [READING, "## What follows\n", tables.verdicts(known)]
    for letter, title in parts.items():
        names = [cell.name for cell in cells if cell.letter == letter]
        mine = {name: found for name, found in known.items() if name in names or name.rpartition(" ")[0] in names}
        found = tables.part(letter, mine, known)
        states = [
            f"`{name}` {newest[name]['status'] if name in newest else 'not yet'}"
            for name in names
            if newest.get(name, {}).get("status") not in DONE
        ]
        out += [f"## {letter}. {title}\n", *([found] if found else ["Nothing yet.\n"])]
        out += [f"Left: {', '.join(states)}.\n"] if states else []
    return "\n".join([*out, *_reasons(newest)])


def _newest(lines: Sequence[Line], show: Mapping[str, Any]) -> dict[str, Line]:
    """The line of each cell on this card: the newest that is done, else the newest."""
    found: dict[str, Line] = {}
    for line in lines:
        is_here = line["card"] == show["card"] and line["toy"] == show["toy"]
        if is_here and (line["status"] in DONE or found.get(line["cell"], line)["status"] not in DONE):
            found[line["cell"]] = line
    return found


def _head(show: Mapping[str, Any], newest: Mapping[str, Line], progress: str) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in show["versions"].items())
    codes = sorted({(line["code"], line["commit"]) for line in newest.values()})
    out = [
        f"By `python -m benchmarks.device.report_card`: {progress}.\n",
        f"- card: {show['cards']} x {show['card']}" if show["cards"] else "- card: none",
        f"- software: {versions}",
        *(f"- code: {code}, commit {commit}" for code, commit in codes),
    ]
    if show["toy"]:
        out.insert(0, "**At toy size on a CPU: this shows that every cell works; no figure here means anything.**\n")
    if len(codes) > 1:
        out.append("- the cells are of different states of the code: compare with care")
    return "\n".join(out) + "\n"


def _reasons(newest: Mapping[str, Line]) -> list[str]:
    left = {name: line for name, line in newest.items() if line.get("reason")}
    if not left:
        return []
    out = ["## Failed, skipped or cut short\n"]
    for name, line in left.items():
        said, *rest = [text.removeprefix("[rank0]:").rstrip() for text in line["reason"].strip().splitlines()]
        out.append(f"- `{name}` {line['status']}: {said}")
        if rest:
            out.append("\n".join(["", "```text", *rest[-SHOWN:], "```", ""]))
    return [*out, ""]
