"""How often a job was started again without getting further: a run's `requeues.json`."""

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from trainer.runs.layout import REQUEUES_FILE, newest_step


@dataclass(kw_only=True, slots=True, frozen=True)
class Requeues:
    """How often a job was put back in the queue since its newest checkpoint."""

    job: str = ""
    step: int = 0
    """The newest checkpoint's, when it was put back last."""
    number: int = 0


def read_requeues(folder: Path, job: str) -> Requeues:
    """Of this job, counting the next; 1 where there is a new checkpoint, or another job was there before."""
    step = newest_step(folder)
    try:
        before = Requeues(**json.loads((folder / REQUEUES_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        before = Requeues()
    if before.job != job or step > before.step:
        return Requeues(job=job, step=step, number=1)
    return Requeues(job=job, step=before.step, number=before.number + 1)


def write_requeues(folder: Path, requeues: Requeues) -> None:
    """Count it, where the folder can be written."""
    with contextlib.suppress(OSError):
        (folder / REQUEUES_FILE).write_text(json.dumps(asdict(requeues)) + "\n", encoding="utf-8")
