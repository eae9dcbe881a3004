"""The layout of a run's folder and of the checkpoints in it: every name is defined here. Imports no torch.

    config.yaml                  the resolved configuration
    status.json                  what the run is doing
    ledger.json                  where the time went
    metrics.jsonl                figures, one line each
    report.md, report.svg        the results: settings, scores, translations; and the curves
    history.jsonl                settings of every start, data position at every start and save
    run.lock, launch.lock        held by the job that writes the run
    STOP                         a request to save and stop
    requeues.json                how often a job was started again and requeued
    checkpoints/latest           the name of the newest checkpoint
    checkpoints/step-00000500/   state.json, config.yaml, the tokenizer and the weights; manifest.json lists them
    checkpoints/tmp-*            a checkpoint being written or deleted; ignored
    eval/step-00000500.hyp       translations behind a score
    plugins/NAME-HASH.py         files with components that the run was started with
    events.out.tfevents.*        what TensorBoard reads
    logs/  failures/

`trainer.checkpoint.format` describes the files of a checkpoint.
"""

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from configs.load import CHECKPOINT_FILE, RUN_CONFIG, RUN_FILES
from configs.process.files import file_in
from configs.process.files.inside import read_json, read_text
from configs.process.text import digest

CONFIG = RUN_CONFIG
"""The resolved configuration: in the run's folder the current one, in a checkpoint the one at the save."""
CHECKPOINTS, STATUS_FILE, METRICS_FILE = RUN_FILES
HISTORY_FILE = "history.jsonl"
REPORT, CURVES = "report.md", "report.svg"
LEDGER_FILE = "ledger.json"
RUN_LOCK = "run.lock"
"""Held by rank 0."""
LAUNCH_LOCK = "launch.lock"
"""Held by `zeromt launch` while it may start ranks."""
STOP_FILE = "STOP"
REQUEUES_FILE = "requeues.json"
FAILURES = "failures"
"""Contains a folder for each launch with failures."""
EVALUATIONS, LOGS = "eval", "logs"

LATEST = "latest"
MANIFEST = CHECKPOINT_FILE
MANIFEST_HASH = "manifest.sha256"
STATE = "state.json"
TEMPORARY = "tmp-"
"""Prefix of names of what is being written or deleted."""

_STEP_NAME = re.compile(r"step-([0-9]{8,})")


def read_config(path: Path) -> dict[str, Any]:
    """A saved configuration as it is written; empty if it cannot be read.

    Args:
        path: of a `config.yaml` in a run or a checkpoint.
    """
    try:
        tree = yaml.safe_load(read_text(path))
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return {}
    return tree if isinstance(tree, dict) else {}


def step_folder(step: int) -> str:
    """The name of a checkpoint's folder."""
    return f"step-{step:08d}"


def step_of(folder: Path) -> int | None:
    """The step in a checkpoint folder's name; None for other folders."""
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
    """The folder of the run that contains a checkpoint's folder; None if it is not in a run.

    A link that is itself the checkpoint's name is followed, and none above it: `checkpoints` may be on a scratch disk.
    """
    for folder in (Path(os.path.abspath(checkpoint)), checkpoint.resolve()):  # noqa: PTH100
        if folder.parent.name == CHECKPOINTS:
            return folder.parent.parent
    return None


def hypotheses_file(run: Path, step: int, name: str | None = None) -> Path:
    """The file with translations of a held-out set.

    Args:
        run: its folder.
        step: updates done.
        name: of the set, if there are several.
    """
    return file_in(run / EVALUATIONS, f"{step_folder(step)}.{'' if name is None else f'{name}.'}hyp")


def list_steps(checkpoints: Path) -> list[Path]:
    """The steps of checkpoint folders, newest first; these may not be whole.

    Args:
        checkpoints: the folder that contains them.

    Raises:
        OSError: it exists and cannot be read.
    """
    if not checkpoints.is_dir():
        return []
    steps = [(step, p) for p in checkpoints.iterdir() if (step := step_of(p)) is not None and p.is_dir()]
    return [p for _, p in sorted(steps, reverse=True)]


def looks_complete(folder: Path) -> bool:
    """Whether a checkpoint has its manifest and the manifest's hash, which are written last."""
    return (folder / MANIFEST).is_file() and (folder / MANIFEST_HASH).is_file()


def complete_steps(run: Path) -> list[int]:
    """Steps of a run's committed checkpoints, in order.

    Their files are not verified.
    """
    folders = [folder for folder in list_steps(run / CHECKPOINTS) if looks_complete(folder)]
    return [step for folder in reversed(folders) if (step := step_of(folder)) is not None]


def newest_step(run: Path) -> int:
    """Step of the newest committed checkpoint; 0 if there is none."""
    return max(complete_steps(run), default=0)


PACKAGES = ("torch", "deepspeed", "webdataset", "sentencepiece", "sacrebleu", "safetensors")
"""Those that have a part in the result, as every checkpoint notes them."""
_PARTS = ("model-", "ema-", "tokenizer")
"""Beginnings of the names of files of weights and of the vocabulary."""


def model_identity(checkpoint: Path) -> dict[str, Any]:
    """The step of a checkpoint, and a hash of its weights, vocabulary and section `model`.

    The trainer's state, its moments and the rest of the configuration do not count: they have times and paths, so they
    differ where a run was killed and resumed, or was moved.
    """
    manifest = read_json(checkpoint / MANIFEST)
    files = {name: one["sha256"] for name, one in manifest["files"].items() if name.startswith(_PARTS)}
    model = yaml.safe_load(read_text(checkpoint / CONFIG)).get("model")
    return {"step": manifest.get("step"), "sha256": digest([files, model])}


def versions(packages: Sequence[str] = PACKAGES) -> Mapping[str, str]:
    """The versions of packages."""
    by_package = dict.fromkeys(packages, "unknown")
    for name in packages:
        with contextlib.suppress(PackageNotFoundError):
            by_package[name] = version(name)
    return by_package
