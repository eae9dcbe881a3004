"""The programs that the report card compares on the same pairs: zeromt, a plain loop and Transformers."""

import dataclasses
import json
import math
import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common.child import call, environment
from benchmarks.device import plain_loop
from benchmarks.device.work import Figures, Job, run_command
from benchmarks.peers import with_transformers
from configs import RunConfig


def staged(name: str) -> list[str]:
    """The overrides of a ZeRO stage, such as `2` or `2-offload`."""
    return [f"engine.zero_stage={name[0]}", f"engine.offload_optimizer={'-offload' in name}".lower()]


def ours(job: Job, run: str, config: RunConfig, *, stage: str | None = None, world_size: int = 1) -> Figures:
    """`zeromt train`, started by torchrun for several ranks.

    Args:
        job: data and budgets.
        run: name of a shipped run.
        config: the resolved configuration of the run.
        stage: as of `staged`; default: the run's own.
        world_size: number of ranks, each with one GPU and one micro-batch per update.
    """
    arguments = [run, "name=measured", *job.overrides(world_size=world_size), *(staged(stage) if stage else [])]
    out, folder = job.folder / "rank", job.folder / "runs" / "measured"
    command = ["-m", "benchmarks.device.rank", str(out), *arguments]
    if world_size > 1:
        torchrun = ["-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={world_size}"]
        command = [*torchrun, "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", *command]
    threads = max(1, len(os.sched_getaffinity(0)) // world_size)
    devices = "" if job.device == "cpu" else ",".join(job.gpus[:world_size])
    extra = {"OMP_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": devices}
    shutil.rmtree(folder, ignore_errors=True)  # the next run would resume from a failed attempt
    run_command([sys.executable, *command], environment() | extra, job.folder)
    ranks = [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(world_size)]
    metrics = read_metrics(folder / "metrics.jsonl")
    shutil.rmtree(folder)
    return metrics | {"peak": None if job.device == "cpu" else max(ranks)}


def read_metrics(path: Path) -> Figures:
    """Rates over the intervals after the first, and the mean loss of every interval."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    first, *timed = (line for line in lines if line["kind"] == "train")
    seconds = timed[-1]["total_seconds"] - first["total_seconds"]
    filled = [line["target_tokens"] + line["source_tokens"] for line in timed]
    padded = sum(n / (1 - line["padding"]) for n, line in zip(filled, timed, strict=True))
    return {
        "tokens_per_second": sum(line["target_tokens"] for line in timed) / seconds,
        "padding": 1 - sum(filled) / padded,
        "waiting_for_data": sum(line["waiting_for_data"] for line in timed) / len(timed),
        "losses": [math.nan if line["loss"] is None else line["loss"] for line in (first, *timed)],
    }


def theirs(function: Callable[..., Figures], job: Job, run: str, config: RunConfig, **more: Any) -> Figures:
    """Run another program on one GPU, with the same model sizes and token budget."""
    model = dataclasses.asdict(config.model)
    attention, feed_forward = model["attention"], model["feed_forward"]
    sizes = {name: model[name] for name in ("d_model", "encoder_layers", "decoder_layers", "dropout")}
    sizes |= {"num_heads": attention["num_heads"], "d_ff": feed_forward["d_ff"]}
    sizes |= {"activation_dropout": feed_forward["dropout"], "vocab": job.vocab}
    figures: Figures = call(
        function,
        pieces=str(job.pieces),
        sizes=sizes,
        device=job.device,
        dtype="bfloat16",
        updates=job.updates,
        warm_up=job.warm_up,
        budget=2 * job.tokens,
        peak=config.optimizer.lr,
        warmup_updates=config.schedule.warmup_updates,
        **more,
    )
    return figures


PROGRAMS: dict[str, Callable[[Job, str, RunConfig], Figures]] = {
    "zeromt": ours,
    "plain loop": partial(theirs, plain_loop.train),
    "transformers": partial(theirs, with_transformers.train, is_exact=True),
}
