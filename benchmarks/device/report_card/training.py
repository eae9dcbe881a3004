"""`zeromt train` itself: every ZeRO stage on all cards, another device on resuming, and other programs beside it."""

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.child import environment
from benchmarks.device.programs import PROGRAMS, ours, setting_of
from benchmarks.device.report_card.cells import TINY
from benchmarks.device.work import (
    Figures,
    Job,
    flops_per_target_token,
    lengths_of,
    planned_peak,
    prepare,
    run_command,
    visible_gpus,
)
from configs import load_run


def stage(*, work: str, device: str, run: str, setting: str, ranks: int | None = None, **sizes: Any) -> Figures:
    """Train on all cards at a ZeRO stage.

    Args:
        work: a folder; data that is there is used again.
        device: cuda or cpu.
        run: name of a shipped run.
        setting: one of `benchmarks.device.programs.SETTINGS`.
        ranks: on a CPU.
        sizes: see `_job`.
    """
    import torch

    gpus = visible_gpus(device, torch.cuda.device_count() if ranks is None else ranks)
    job = _job(work, device, gpus, **sizes)
    config = load_run(run, job.overrides(world_size=len(gpus)))
    found = ours(job, run, config, stage=setting, world_size=len(gpus))
    chosen = setting_of(config, setting)
    planned = planned_peak(config, chosen, vocab=job.vocab, tokens=job.tokens, world_size=len(gpus))
    return found | {"ranks": len(gpus), "setting": str(chosen), "planned_peak": planned}


def program(*, work: str, device: str, run: str, name: str, **sizes: Any) -> Figures:
    """Train a model of the same sizes on the same pairs on one card; `name` is one of `programs.PROGRAMS`."""
    if name == "transformers":
        for package in ("transformers", "accelerate"):
            if importlib.util.find_spec(package) is None:
                return {"skipped": f"{package} is not installed"}
    gpus = visible_gpus(device, 1)
    if device == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[0]  # Transformers takes all that it sees
    job = _job(work, device, gpus, **sizes)
    config = load_run(run, job.overrides(world_size=1))
    found = PROGRAMS[name](job, run, config)
    flops = flops_per_target_token(config.model, job.vocab, lengths_of(job))
    return {**found, "program": name, "flops_per_target_token": flops}


def _job(
    work: str, device: str, gpus: Sequence[str], *, tokens: int, vocab: int, pairs: int, updates: int, warm_up: int,
    is_tiny: bool = False,
) -> Job:  # fmt: skip
    """Data and budgets; data are made where they are not there yet.

    Args:
        work: a folder.
        device: cuda or cpu.
        gpus: their names.
        tokens: padded tokens per side of a micro-batch; an update has one for each rank.
        vocab: size of the joint vocabulary.
        pairs: of the corpus.
        updates, warm_up: of all, and of those that are not timed.
        is_tiny: a model for toy size.
    """
    folder = Path(work, f"pairs-{pairs}-{vocab}")
    job = Job(
        folder=folder,
        device=device,
        gpus=gpus,
        tokens=tokens,
        updates=updates,
        warm_up=warm_up,
        vocab=vocab,
        settings=TINY if is_tiny else [],
    )
    done = folder / "done"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        prepare(job, pairs)
        done.touch()
    return job


def resumed(*, work: str, device: str, run: str, updates: int, settings: Sequence[str]) -> Figures:
    """A run in three parts: on the CPU, on the card, on the CPU; beside one that stays on the CPU.

    In fp32 without dropout, whose masks CPUs and GPUs draw otherwise.

    Args:
        work: a folder.
        device: of the second part.
        run: name of a shipped run on the bundled corpus.
        updates: of each part.
        settings: overrides `section.key=value`.
    """
    folder = Path(work, "resumed")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    common = [
        run,
        f"prepare.output={folder / 'data'}",
        f"output={folder}",
        "engine.precision=fp32",
        "model.dropout=0",
        "model.feed_forward.dropout=0",
        "training.log_every=1",
        "training.tensorboard=false",
        "evaluation.every_updates=0",
        f"checkpoint.every_updates={updates}",
        *settings,
    ]
    _zeromt(folder, "prepare", *common)
    for name, devices in (("stays", ["cpu"] * 3), ("moves", ["cpu", device, "cpu"])):
        for part, place in enumerate(devices, start=1):
            if name == "moves" or part == len(devices):
                more = [f"name={name}", f"engine.device={place}", f"training.max_updates={part * updates}"]
                _zeromt(folder, "train", *common, *more)
    losses = {name: np.array(_losses(folder / name)) for name in ("stays", "moves")}
    off = np.abs(losses["moves"] - losses["stays"]) / losses["stays"]
    return {
        "resumed": [
            {"device": place, "off": float(off[part * updates : (part + 1) * updates].max())}
            for part, place in enumerate(("cpu", device, "cpu"))
        ],
        "losses": {name: found.tolist() for name, found in losses.items()},
    }


def _zeromt(folder: Path, *arguments: str) -> None:
    run_command([sys.executable, "-m", "zeromt", *arguments], environment(), folder)


def _losses(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line["loss"] for line in lines if line["kind"] == "train"]
