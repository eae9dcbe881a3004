"""Tokens a second that a trainer consumes on this machine: a few updates of a shipped run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.common.child import ROOT, environment
from benchmarks.common.measure import median
from configs import UserError

RUN = "configs/runs/tatoeba_demo.yaml"
LOG_EVERY = 5


def train(dataset: Path, folder: Path, *, updates: int) -> dict[str, Any]:
    """Tokens a second of `zeromt launch local` with one process per device or core, without the first updates.

    Raises:
        UserError: the run failed; the message has the end of its stderr.
    """
    overrides = {
        "name": "train",
        "output": folder,
        "stream.datasets": f"[{{path: '{dataset}'}}]",
        "training.max_updates": updates + LOG_EVERY,
        "schedule.warmup_updates": 1,
        "training.max_minutes": 30,
        "training.log_every": LOG_EVERY,
        "training.tensorboard": "false",
        "evaluation.every_updates": 0,
        "evaluation.max_pairs": 2,
        "checkpoint.every_updates": 0,
    }
    command = [sys.executable, "-m", "zeromt", "launch", "local", RUN, "--nproc", "auto"]
    command += [f"{key}={value}" for key, value in overrides.items()]
    ended = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    if ended.returncode:
        raise UserError(f"{RUN}: exit code {ended.returncode}\n{ended.stderr[-2000:]}")
    lines = map(json.loads, (folder / "train" / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    intervals = [line for line in lines if line["kind"] == "train"][1:]
    return {
        "run": RUN,
        "updates": updates,
        # tokens of both sides, like the reader's figures
        "tokens_per_second": median(
            (w["source_tokens"] + w["target_tokens"]) / w["target_tokens"] * w["tokens_per_second"] for w in intervals
        ),
        "waiting_for_data": median(w["waiting_for_data"] for w in intervals),
    }
