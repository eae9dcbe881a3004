"""All that a GPU can tell, in cells of about 20 seconds, which are kept when the machine goes away.

    python -m benchmarks.device.report_card --out report
    python -m benchmarks.device.report_card --out report2 --from report --minutes 25
    python -m benchmarks.device.report_card --out report --toy

Needs no make, no network and no package but those of a run; cells that can use Transformers, CTranslate2 or pytest are
skipped without them. Each cell runs in a process of its own with a time limit, so that one that crashes or hangs is a
line of the result. Results are appended to report.jsonl at once, and page.md is made anew. Ended or killed at any
moment, the same command with the same folder resumes: what the same code has measured on the same kind of
card is not measured again.
"""

import argparse
import datetime
import fcntl
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.common.child import call_named
from benchmarks.common.measure import run_main
from benchmarks.common.results import commit
from benchmarks.device.report_card import kept as keeping
from benchmarks.device.report_card.cells import CELLS, PACKAGE, PARTS, Cell
from benchmarks.device.report_card.kept import Kept, Line
from benchmarks.device.report_card.page import PAGE, page
from configs import UserError

RESERVE = 5.0
"""Seconds kept back for the page and for ending what runs."""
TOY_PATIENCE = 8
"""Times the limit of a cell: at toy size other work may be running beside it."""
PREFIX = "zeromt-report-card-"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 if a cell of this command failed; 75 if the time was over, or it was told to end, before the last.

    Raises:
        UserError: there is no card, or no earlier report.
    """
    begun = time.monotonic()
    args = _parse(arguments)
    if args.toy:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    kept = Kept(args.out, args.earlier)
    found = call_named(f"{PACKAGE}.machine", "card", limit=120)
    if not args.toy and not found["cards"]:
        raise UserError("torch sees no GPU; `zeromt doctor` says why, and --toy tries this command on a CPU")
    place = {"code": keeping.code(), "card": found["card"], "toy": args.toy}
    cells = {
        cell.name: cell for cell in CELLS if cell.letter in args.parts and cell.name in (args.cells or (cell.name,))
    }
    show = {"commit": commit(), "cards": found["cards"], "versions": found["versions"], **place}
    is_left, failures = False, 0
    try:
        with _work_folder(args.work) as work:
            for name in keeping.order(kept, place, list(cells)):
                left = 60 * args.minutes - RESERVE - (time.monotonic() - begun)
                if left < cells[name].needs * (0.2 if args.toy else 1):
                    is_left = True  # a shorter one further on may still fit
                    continue
                limit = cells[name].limit * (TOY_PATIENCE if args.toy else 1)
                kept.add({**show, "cell": name, "status": "begun", "at": _now()})
                line = _measure(cells[name], work, min(left, limit), is_toy=args.toy)
                if line["status"] == "failed" and line["seconds"] >= left - 1:
                    line["status"] = "cut"  # by the end of this command's time, which is no fault of the cell
                    is_left = True
                kept.add({**show, "cell": name, **line})
                failures += line["status"] == "failed"
                print(f"{cells[name].letter}  {name}: {line['status']}, {line['seconds']:.1f} s", flush=True)
                _write_page(args.out, kept, show)
    except KeyboardInterrupt:
        is_left = True
    _write_page(args.out, kept, show)
    rest = "to go on, give the same command again" if is_left else f"no cell is left, {failures} failed"
    print(f"{args.out / PAGE}: {rest}")
    return 75 if is_left else int(failures > 0)


def _measure(cell: Cell, work: Path, limit: float, *, is_toy: bool) -> Line:
    """Run a cell in a process of its own."""
    start = time.monotonic()
    arguments = {**cell.arguments, **(cell.toy if is_toy else {})}
    if "seconds" in arguments:  # a cell that keeps what it has when its time is over
        arguments["seconds"] = max(1.0, min(arguments["seconds"], limit - RESERVE))
    line: dict[str, Any] = {"letter": cell.letter}
    try:
        module, _, function = cell.function.rpartition(".")
        device = "cpu" if is_toy else "cuda"
        figures = call_named(module, function, limit=limit, work=str(work), device=device, **arguments)
        if "skipped" in figures:
            line |= {"status": "skipped", "reason": figures["skipped"]}
        elif figures.get("is_late"):
            line |= {"status": "failed", "reason": "ended by its limit; what it has is kept", "figures": figures}
        else:
            line |= {"status": "ok", "figures": figures}
    except UserError as error:
        line |= {"status": "failed", "reason": str(error)}
    return {**line, "seconds": round(time.monotonic() - start, 1), "at": _now()}


def _write_page(folder: Path, kept: Kept, show: dict[str, Any]) -> None:
    """Whole at any moment: the file that is made takes the old one's place."""
    new = folder / f".{PAGE}"
    new.write_text(page(kept.lines, show, CELLS, PARTS), encoding="utf-8")
    new.replace(folder / PAGE)


@contextmanager
def _work_folder(parent: Path | None) -> Iterator[Path]:
    """A folder for data and runs, removed afterwards; those that killed reports have left are removed before."""
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    for old in parent.glob(f"{PREFIX}*"):
        with _locked(old) as is_ours:
            if is_ours:
                shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)).resolve()
    try:
        with _locked(folder):
            os.environ["TMPDIR"] = str(folder)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Hold a folder's lock; false if another process has it, or the folder is not ours."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def _end(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.device.report_card",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--out", type=Path, default=Path("runs/gpu-report"), metavar="FOLDER", help="of the results")
    options.add_argument(
        "--from", dest="earlier", type=Path, metavar="FOLDER", help="go on from this folder's results, kept as they are"
    )
    options.add_argument("--minutes", type=float, default=7.5, help="after which it ends with what it has (7.5)")
    options.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS), help="only some parts")
    options.add_argument("--cells", nargs="+", choices=[cell.name for cell in CELLS], metavar="NAME", help="only these")
    options.add_argument(
        "--work", type=Path, metavar="FOLDER", help="for temporary files; default: the system's folder"
    )
    options.add_argument("--toy", action="store_true", help="toy size on the CPU, to test it; its figures mean nothing")
    args = options.parse_args(arguments)
    if args.minutes <= 0.5:
        options.error(f"--minutes: {args.minutes:g}; give more than 0.5")
    return args


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    sys.exit(run_main(main))
