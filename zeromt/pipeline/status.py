"""`zeromt status PIPELINE`: what each step is doing, from the records next to the results."""

import contextlib
import fcntl
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from configs.process.files import inside
from configs.process.progress import say
from launcher.slurm.queue import jobs_named
from zeromt.pipeline.keys import Record
from zeromt.pipeline.options import GRAPH_FILE
from zeromt.pipeline.recipe import RECORDS


def status(folder: Path, *, as_json: bool) -> int:
    """Print a line for each step, or one JSON object."""
    rows = list(_rows(folder))
    if as_json:
        print(json.dumps({"folder": str(folder), "steps": rows}))
        return 0
    width = max(len(row["step"]) for row in rows)
    done = sum(row["state"] in ("done", "given") for row in rows)
    say(f"{folder}: {done} of {len(rows)} steps are done")
    for row in rows:
        said = [row["state"]]
        said += [f"exit code {row['code']}, see {row['log']}"] if row["code"] else []
        said += [f"job {', '.join(row['jobs'])}"] if row["jobs"] else []
        said += [f"for {', '.join(row['needs'])}"] if row["state"] == "waiting" and row["needs"] else []
        say(f"{row['step']:{width}}  {', '.join(said)}")
    return 0


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    for name, step in inside.read_json(folder / GRAPH_FILE).items():
        record = Record.read(folder / RECORDS / f"{name}.json")
        log = str(folder / RECORDS / f"{name}.log")
        row = {"step": name, "needs": step["needs"], "code": None, "jobs": [], "log": log}
        row["state"] = "given" if step["use"] else "waiting"
        if record is not None:
            row |= {"code": record.code, "state": "failed" if record.code else "done"}
        if record is not None and record.code is None:
            is_held = _is_held(folder / RECORDS / f"{name}.lock")
            row["jobs"] = [] if is_held else jobs_named(record.job(name))
            row["state"] = "running" if is_held else "sent" if row["jobs"] else "stopped"
        yield row


def _is_held(lock: Path) -> bool:
    """Whether the process of a step on this machine holds its lock."""
    with contextlib.suppress(OSError), inside.opened(lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
