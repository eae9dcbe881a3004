"""Makes docs/benchmarks.md and its plots from the results.

    python -m benchmarks.page
    python -m benchmarks.page --results runs/bench --page runs/bench/page.md

The page has the newest result of each question and, where that matters, of each processor.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.child import ROOT
from benchmarks.common.measure import run_main
from benchmarks.common.results import FOLDER, Result, load
from benchmarks.report import data, device, inference, training, verified
from benchmarks.report.plots import svg
from benchmarks.report.section import Section
from benchmarks.report.tables import Results, markdown
from configs import UserError

PAGE = ROOT / "docs" / "benchmarks.md"
SECTIONS = (
    training.TRAINING,
    training.RANKS,
    training.GROWTH,
    data.PADDING,
    training.CHECKPOINTS,
    inference.DECODING,
    inference.TIME_TO_BLEU,
    inference.QUALITY,
    training.STARTUP,
    training.LOSS_MEMORY,
    data.DATA,
    data.MEMORY,
    data.PLANNER,
    training.DEVICE,
    device.BUDGET,
    training.AGAINST,
    verified.STORMS,
    verified.ELASTIC,
    verified.EXPORTS,
)
HEAD = """# Benchmarks

Made by `python -m benchmarks.page` from the files in {folder}, which also have every earlier measurement. A figure of
several rounds is their median, with the lowest and highest in brackets; a ratio is formed within a round.
{method} says how each is measured. Machines differ: compare ratios.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page and its plots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=FOLDER, metavar="FOLDER")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE", help="its plots go to a folder beside it")
    args = parser.parse_args(arguments)
    results = load(args.results)
    if not results:
        raise UserError(f"--results: no result in {args.results}; `make bench` writes some")
    for path, text in make(results, args.page).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print(args.page)
    return 0


def make(results: Results, page: Path) -> dict[Path, str]:
    """The contents of the page and of its plots, by their paths."""
    found: dict[Path, str] = {}
    folder = os.path.commonpath([result.path.parent.absolute() for result in results])
    method = _link("benchmarks/README.md", ROOT / "benchmarks" / "README.md", page)
    texts = [HEAD.format(folder=_link("results", Path(folder), page), method=method)]
    shown: list[Result] = []
    for section in SECTIONS:
        texts.append(_section(section, results, page, found, shown))
    estimated = sorted({f"{key} ({result.question})" for result in shown for key in result.estimated})
    told = f"Estimated are: {', '.join(estimated)}." if estimated else "No figure on this page is an estimate."
    texts.append(f"## What is estimated\n\n{told}\n")
    return {page: "\n".join(texts), **found}


def _section(section: Section, results: Results, page: Path, plots: dict[Path, str], shown: list[Result]) -> str:
    """A section's text; adds its plot, and the results that it is made from."""
    texts = [f"## {section.title}", section.lead]
    sources: list[Result] = []
    for number, table in enumerate(section.tables):
        chosen, rows = table.choice(results)
        if rows:
            texts += [table.lead] if table.lead else []
            texts.append(markdown(table, chosen, rows))
            sources += [result for result in chosen if result not in sources]
        if number == 0 and section.plot_of:
            chosen, rows = section.plot_of(results)
            sources += [result for result in chosen if result not in sources]
        if number == 0 and section.plot and rows:
            path = page.parent / page.stem / f"{section.plot_name}.svg"
            plots[path] = svg(section.plot, rows)
            texts.append(f"![{section.title}]({path.relative_to(page.parent)})")
    texts.append("\n".join(_source(result, page) for result in sources) or section.otherwise or "Not measured yet.")
    shown += sources
    return "\n\n".join(texts) + "\n"


def _source(result: Result, page: Path) -> str:
    """Where, when and with what a result was measured."""
    what = _link(result.date[:10] + (f" at {result.commit}" if result.commit != "unknown" else ""), result.path, page)
    settings = [f"{name.replace('_', ' ')} {_setting(value)}" for name, value in result.settings.items()]
    versions = [f"{name} {version}" for name, version in result.versions.items()]
    parts = [f"{result.machine}, {result.cores} cores", ", ".join(settings), ", ".join(versions)]
    return f"- {what}: {'; '.join(filter(None, parts))}"


def _setting(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _link(text: str, path: Path, page: Path) -> str:
    return f"[{text}]({os.path.relpath(path.absolute(), page.parent.absolute())})"


if __name__ == "__main__":
    run_main(main)
