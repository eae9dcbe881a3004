"""`zeromt status PIPELINE`: what each step is doing, from the records beside the results."""

import contextlib
import fcntl
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from configs import UserError
from configs.process.files import inside
from configs.process.progress import say
from launcher.slurm.queue import jobs_named
from zeromt.pipeline.options import GRAPH_FILE
from zeromt.pipeline.records import Record, Records, job_name


def status(folder: Path, *, as_json: bool) -> int:
    """Print a line for each step, or one JSON object."""
    rows = list(_rows_of(folder))
    if as_json:
        print(json.dumps({"folder": str(folder), "steps": rows}))
        return 0
    width = max(len(row["step"]) for row in rows)
    done = sum(row["state"] in ("done", "given") for row in rows)
    say(f"{folder}: {done} of {len(rows)} steps are done")
    for row in rows:
        say(f"{row['step']:{width}}  {_said(row)}")
    return 0


def _rows_of(folder: Path) -> Iterator[dict[str, Any]]:
    """What is known of each step: `step`, `state`, `needs`, and of those that began `seconds`, `code`, `jobs`, `log`.

    Raises:
        UserError: no pipeline was begun in the folder.
    """
    records = Records(folder)
    for name, step in _graph_of(folder).items():
        record = records.read(name)
        row = {"step": name, "needs": step["needs"], "state": _state(records, name, step, record)}
        if record is not None:
            now = time.time() - record.begun if row["state"] == "running" else 0.0
            row |= {"seconds": record.seconds + now, "code": record.code}
            row["jobs"] = jobs_named(job_name(name, record)) if row["state"] == "stopped" else []
            row["state"] = "sent" if row["jobs"] else row["state"]
            row |= {"ended": record.ended, "words": record.words, "log": str(records.folder / f"{name}.log")}
        yield row


def _graph_of(folder: Path) -> dict[str, Any]:
    """The steps of a pipeline, as its last driver knew them."""
    try:
        return dict(inside.read_json(folder / GRAPH_FILE))
    except (OSError, ValueError) as error:
        raise UserError(f"PIPELINE: {str(folder / GRAPH_FILE)!r} cannot be read; run the pipeline") from error


def _state(records: Records, name: str, step: dict[str, Any], record: Record | None) -> str:
    if step["use"]:
        return "given"
    if record is None:
        return "waiting"
    if record.code is None:
        return "running" if _is_held(records.folder / f"{name}.lock") else "stopped"
    return "done" if record.is_done else "stopped" if record.code == 75 else "failed"


def _is_held(lock: Path) -> bool:
    """Whether the process of a step on this machine holds its lock."""
    with contextlib.suppress(OSError), inside.opened(lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _said(row: dict[str, Any]) -> str:
    said = [row["state"]]
    if row.get("code") not in (None, 0):
        said.append(f"exit code {row['code']}, see {row['log']}")
    if row.get("seconds"):
        said.append(f"{tqdm.format_interval(row['seconds'])} in all")
    if row.get("jobs"):
        said.append(f"job {', '.join(row['jobs'])}")
    if row["state"] == "waiting" and row["needs"]:
        said.append(f"for {', '.join(row['needs'])}")
    return ", ".join(said)
