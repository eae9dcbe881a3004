"""The layout of a run's folder and of the checkpoints in it: every name of theirs, stated once. Imports no torch.

    config.yaml                  the resolved configuration
    status.json                  what the run is doing
    origin.json                  the file that it was configured by
    parent.json                  the checkpoint of another run that it began from (`--from`)
    ledger.json                  where the time went
    metrics.jsonl                figures, one line each
    updates.bin                  16 bytes an update: digests of its pairs and its loss
    history.jsonl                with what it was started, and where its data stood at every start and save
    run.lock, launch.lock        held by the job that writes the run
    STOP                         somebody asks it to save and stop
    stuck.log                    which ranks were ended by their watchdogs
    requeues.json                how often a batch job was put back in the queue
    logs/jobs.json               the jobs that were submitted for the run, and to which cluster
    checkpoints/latest           the name of the newest
    checkpoints/step-00000500/   state.json, config.yaml, the tokenizer and the weights; manifest.json lists them
    checkpoints/tmp-*            one that is being written or deleted; counts for nothing
    eval/step-00000500.hyp       translations behind a score
    eval/kept/HASH-HASH.hyp      translations of any set by a checkpoint and a search; .json says which
    eval/queue/                  what a metric's command is still to score
    plugins/NAME-HASH.py         files with components that the run was started with
    events.out.tfevents.*        what TensorBoard reads
    pairs/  logs/  failures/

What is in a checkpoint's files says `trainer.checkpoint.format`.
"""

import re
from pathlib import Path

from configs.load import RUN_CONFIG, SIGN_OF_A_CHECKPOINT, SIGNS_OF_A_RUN
from configs.plugins.saved import COPIES

CONFIG = RUN_CONFIG
"""The resolved configuration: the run's as it is now, and in a checkpoint as it was saved."""
CHECKPOINTS, STATUS_FILE, METRICS_FILE = SIGNS_OF_A_RUN
ORIGIN_FILE = "origin.json"
HISTORY_FILE = "history.jsonl"
PARENT_FILE = "parent.json"
UPDATES_FILE = "updates.bin"
LEDGER_FILE = "ledger.json"
RUN_LOCK = "run.lock"
"""Held by rank 0."""
LAUNCH_LOCK = "launch.lock"
"""Held by `zeromt launch` as long as it may start ranks."""
STOP_FILE = "STOP"
STUCK_FILE = "stuck.log"
"""The monitors' last words, for whoever started the run."""
REQUEUES_FILE = "requeues.json"
JOBS_FILE = "jobs.json"
"""Among the logs."""
FAILURES = "failures"
"""A folder for each start whose ranks failed."""
EVALUATIONS, PAIRS, LOGS = "eval", "pairs", "logs"
BOARD = "events.out.tfevents."
"""What the names of the files that TensorBoard reads begin with; the seconds of their beginning follow, and it reads
by name."""
EARLIER_BOARD = "tensorboard"
"""The folder in which runs of earlier versions have them."""
QUEUE = "queue"
"""Among the evaluations: scores that are awaited."""

PLUGINS = COPIES

LATEST = "latest"
MANIFEST = SIGN_OF_A_CHECKPOINT
MANIFEST_HASH = "manifest.sha256"
STATE = "state.json"
TEMPORARY = "tmp-"
"""Begins the name of what is being written or deleted."""

_STEP_NAME = re.compile(r"step-([0-9]{8,})")


def step_folder(step: int) -> str:
    """The name of a checkpoint's folder."""
    return f"step-{step:08d}"


def step_of(folder: Path) -> int | None:
    """The step in a folder's name; None for other folders."""
    match = _STEP_NAME.fullmatch(folder.name)
    return int(match[1]) if match else None


def checkpoint_folder(run: Path, step: int) -> Path:
    """Where the checkpoint of a step is.

    Args:
        run: the run's folder.
        step: updates done.
    """
    return run / CHECKPOINTS / step_folder(step)


def run_of(checkpoint: Path) -> Path | None:
    """The folder of the run that a checkpoint's folder lies in; None where it lies elsewhere."""
    above = checkpoint.resolve().parent
    return above.parent if above.name == CHECKPOINTS else None


def hypotheses_file(step: int, name: str | None = None) -> str:
    """The file of translations of a held-out set, in the folder of evaluations.

    Args:
        step: updates done.
        name: of the set, where there are several.
    """
    return f"{step_folder(step)}.hyp" if name is None else f"{step_folder(step)}.{name}.hyp"


def kept_hypotheses(checkpoint: str, work: str) -> str:
    """The file of translations that were made after training, in the run's folder, without its ending.

    Args:
        checkpoint: SHA-256 of its manifest.
        work: of what was translated, and how.
    """
    return f"{EVALUATIONS}/kept/{checkpoint[:12]}-{work[:12]}"


def list_steps(checkpoints: Path) -> list[Path]:
    """Folders named after a step, the newest first; whole or not.

    Args:
        checkpoints: the folder that they are in.

    Raises:
        OSError: it is there and cannot be read.
    """
    if not checkpoints.is_dir():
        return []
    found = [(step, p) for p in checkpoints.iterdir() if (step := step_of(p)) is not None and p.is_dir()]
    return [p for _, p in sorted(found, reverse=True)]


def looks_complete(folder: Path) -> bool:
    """Whether a checkpoint has its manifest and the manifest's hash, which are written after everything else."""
    return (folder / MANIFEST).is_file() and (folder / MANIFEST_HASH).is_file()


def complete_steps(run: Path) -> list[int]:
    """Steps of a run's checkpoints that were committed, in order; none where that cannot be told.

    Their bytes are not looked at.
    """
    try:
        folders = [folder for folder in list_steps(run / CHECKPOINTS) if looks_complete(folder)]
    except OSError:
        return []
    return [step for folder in reversed(folders) if (step := step_of(folder)) is not None]


def newest_step(run: Path) -> int:
    """Step of the newest checkpoint that was committed; 0 where there is none."""
    return max(complete_steps(run), default=0)
