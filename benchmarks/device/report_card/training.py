"""`zeromt train` itself: every ZeRO stage on all cards, and other programs for comparison."""

import importlib.util
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.device.programs import PROGRAMS, ours, staged
from benchmarks.device.report_card.cells import TINY
from benchmarks.device.work import (
    GIB,
    Figures,
    Job,
    flops_per_target_token,
    lengths_of,
    mfu,
    planned_peak,
    prepare,
    visible_gpus,
)
from configs import load_run


def stage(*, work: str, device: str, run: str, setting: str, ranks: int | None = None, **sizes: Any) -> Figures:
    """Train on all cards at a ZeRO stage.

    Args:
        work: a folder; data that is there is used again.
        device: cuda or cpu.
        run: name of a shipped run.
        setting: the ZeRO stage, followed by -offload for an optimizer on the host.
        ranks: on a CPU.
        sizes: see `_job`.
    """
    import torch

    gpus = visible_gpus(device, torch.cuda.device_count() if ranks is None else ranks)
    job = _job(work, device, gpus, **sizes)
    overrides = job.overrides(world_size=len(gpus))
    figures = ours(job, run, load_run(run, overrides), stage=setting, world_size=len(gpus))
    given = [*overrides, *staged(setting)]
    planned = planned_peak(run, given, tokens=job.tokens, vocab=job.vocab, world_size=len(gpus))
    row = {
        "ranks": len(gpus),
        "target tokens/s": figures["tokens_per_second"],
        "waiting for data": figures["waiting_for_data"],
        "loss": figures["losses"][-1],
        "GiB": figures["peak"],
        "GiB planned": planned / GIB,
    }
    return {"rows": [row]}


def program(*, work: str, device: str, run: str, name: str, **sizes: Any) -> Figures:
    """Train a model of the same sizes on the same pairs on one card; `name` is one of `programs.PROGRAMS`."""
    if name == "transformers" and not all(map(importlib.util.find_spec, ("transformers", "accelerate"))):
        return {"skipped": "transformers or accelerate is not installed"}
    gpus = visible_gpus(device, 1)
    if device == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[0]  # Transformers takes all that it sees
    job = _job(work, device, gpus, **sizes)
    config = load_run(run, job.overrides(world_size=1))
    figures = PROGRAMS[name](job, run, config)
    rate, flops = figures["tokens_per_second"], flops_per_target_token(config.model, job.vocab, lengths_of(job))
    row = {
        "target tokens/s": rate,
        "MFU": mfu(rate, flops, device),
        "padding": figures["padding"],
        "GiB": figures["peak"],
    }
    return {"rows": [row]}


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
