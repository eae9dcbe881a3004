"""How often a job was requeued without progress: a run's `requeues.json`."""

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from configs.process.files.inside import read_json, write_text
from trainer.runs.layout import REQUEUES_FILE, newest_step


@dataclass(kw_only=True, slots=True, frozen=True)
class Requeues:
    """How often a job was requeued since its newest checkpoint."""

    job: str = ""
    step: int = 0
    """Step of the newest checkpoint at the last requeue."""
    number: int = 0


def read_requeues(folder: Path, job: str) -> Requeues:
    """Requeues of this job, including the next; 1 if there is a new checkpoint, or the record is of another job."""
    step = newest_step(folder)
    try:
        before = Requeues(**read_json(folder / REQUEUES_FILE))
    except (OSError, ValueError, TypeError):
        before = Requeues()
    if before.job != job or step > before.step:
        return Requeues(job=job, step=step, number=1)
    return Requeues(job=job, step=before.step, number=before.number + 1)


def write_requeues(folder: Path, requeues: Requeues) -> None:
    """Store the count, if the folder can be written."""
    with contextlib.suppress(OSError):
        write_text(folder / REQUEUES_FILE, json.dumps(asdict(requeues)) + "\n")
