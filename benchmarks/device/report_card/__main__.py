"""All that a GPU can tell, in cells of about 20 seconds, which are kept when the machine goes away.

    python -m benchmarks.device.report_card --out report
    python -m benchmarks.device.report_card --out report --minutes 25
    python -m benchmarks.device.report_card --out report --toy

Needs no make, no network and no package but those of a run; cells that can use Transformers, CTranslate2 or pytest are
skipped without them. Each cell runs in a process of its own with a time limit, so that one that crashes or hangs is a
line of the result. Results are appended to report.jsonl at once, and page.md is made anew. Ended or killed at any
moment, the same command with the same folder (or a copy of it, elsewhere) resumes: what the same code has measured on
the same kind of card is not measured again.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.child import call_named
from benchmarks.common.measure import run_main
from benchmarks.common.results import commit
from benchmarks.device.report_card.cells import CELLS, PACKAGE, Cell
from benchmarks.device.report_card.report import PAGE, Report, code
from configs import UserError

RESERVE = 5.0
"""Seconds kept back for ending what runs."""
TOY_PATIENCE = 8
"""Times the limit of a cell: at toy size other work may be running at the same time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 if a cell of this command failed; 75 if the time was over before the last.

    Raises:
        UserError: there is no card.
    """
    begun = time.monotonic()
    args = _parse(arguments)
    if args.toy:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    machine = call_named(f"{PACKAGE}.machine", "card", limit=120)
    if not args.toy and not machine["cards"]:
        raise UserError("torch sees no GPU; `zeromt doctor` says why, and --toy tries this command on a CPU")
    report = Report(args.out, {"code": code(), "card": machine["card"], "toy": args.toy})
    show = {"commit": commit(), "cards": machine["cards"], "versions": machine["versions"]}
    is_left, failures = False, 0
    with tempfile.TemporaryDirectory(dir=args.work) as work:
        os.environ["TMPDIR"] = work
        for name in report.order(args.cells or list(CELLS)):
            left = 60 * args.minutes - RESERVE - (time.monotonic() - begun)
            if left < CELLS[name].needs * (0.2 if args.toy else 1):
                is_left = True  # a shorter one further on may still fit
                continue
            line = _measure(CELLS[name], work, left, is_toy=args.toy)
            report.add({"cell": name, **show, **line})
            failures += line["status"] == "failed"
            print(f"{name}: {line['status']}, {line['seconds']:.1f} s", flush=True)
    rest = "give the same command again to continue" if is_left else f"no cell is left, {failures} failed"
    print(f"{args.out / PAGE}: {rest}")
    return 75 if is_left else int(failures > 0)


def _measure(cell: Cell, work: str, left: float, *, is_toy: bool) -> dict[str, Any]:
    """Run a cell in a process of its own; returns its status, seconds, and rows or the reason why it has none."""
    start = time.monotonic()
    module, _, function = cell.function.rpartition(".")
    arguments = {"work": work, "device": "cpu" if is_toy else "cuda", **cell.arguments, **(cell.toy if is_toy else {})}
    limit = min(left, cell.limit * (TOY_PATIENCE if is_toy else 1))
    try:
        result = call_named(f"{PACKAGE}.{module}", function, limit=limit, **arguments)
        line = {"status": "skipped", "reason": result["skipped"]} if "skipped" in result else {"status": "ok", **result}
    except UserError as error:
        line = {"status": "failed", "reason": str(error)}
    return {**line, "seconds": round(time.monotonic() - start, 1)}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.device.report_card",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--out", type=Path, default=Path("runs/gpu-report"), metavar="FOLDER", help="of the results")
    options.add_argument("--minutes", type=float, default=7.5, help="after which it ends with what it has (7.5)")
    options.add_argument("--cells", nargs="+", choices=list(CELLS), metavar="NAME", help="only these")
    options.add_argument(
        "--work", type=Path, metavar="FOLDER", help="for temporary files; default: the system's folder"
    )
    options.add_argument("--toy", action="store_true", help="toy size on the CPU, to test it; its figures mean nothing")
    return options.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(run_main(main))
