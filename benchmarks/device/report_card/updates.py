"""Updates by the trainer's engine alone, without reader, logs and saves: rate, memory, and time of host and device."""

import dataclasses
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.device.budget_batches import LENGTH_MULTIPLE, sampled
from benchmarks.device.plain_loop import peaks, wait
from benchmarks.device.profiling import profiled
from benchmarks.device.programs import setting_of
from benchmarks.device.work import Figures, flops_per_target_token, planned_peak
from configs import RunConfig, load_run
from data_pipeline.stream.batch import MicroBatch, Ragged, collate
from model import Objective, SpecialIds, build_transformer
from trainer.engines.batches import DeviceBatch, Update, count
from trainer.engines.deepspeed.engine import DeepSpeedEngine
from trainer.lookahead import lay_out
from trainer.ranks.distributed import World
from trainer.ranks.process import tune_process
from trainer.stability.attention import settle_attention

SPECIAL = SpecialIds(pad=0, bos=1, eos=2)


def measure(
    *,
    work: str,
    device: str,
    run: str,
    tokens: int,
    vocab: int,
    updates: int,
    shapes: int = 12,
    settings: Mapping[str, Sequence[str]],
    precision: str = "bf16",
    operators: int = 0,
    waits: bool = False,
) -> Figures:
    """Measure a run's model and optimizer on one rank, with lengths like WMT14 English-German's and random pieces.

    Several settings take turns in one process, since the host of a rented card changes from minute to minute.

    Args:
        work: not used; every cell gets it.
        device: cuda or cpu.
        run: name of a shipped run.
        tokens: padded tokens per side of a micro-batch; an update has one.
        vocab: size of the joint vocabulary.
        updates: timed updates; a third as many come before them.
        shapes: different micro-batches, which come again in turn.
        settings: overrides `section.key=value` of the run, by name.
        precision: of the engine.
        operators: how many of the dearest kernels to return.
        waits: whether the host reads the norm of an update before it begins the next, so that the device runs dry.

    Returns:
        `variants`: what was measured with each of `settings`.
    """
    tune_process()  # as the trainer does: its allocator, and no attention that plans for every new shape
    world = World(timeout_minutes=2)
    lengths, variants = sampled(tokens, shapes), {}
    for name, more in settings.items():
        config = load_run(run, [f"engine.precision={precision}", "evaluation.every_updates=0", *more])
        if (why := _why_not(config, device)) is not None:
            return {"skipped": why}
        engine = _engine(config, vocab, precision, world)
        settle_attention(config, np.concatenate(lengths), engine, world, None)
        variants[name] = _measure(engine, config, lengths, vocab, updates, operators, waits, device)
        planned = planned_peak(config, setting_of(config), vocab=vocab, tokens=tokens, precision=precision)
        variants[name]["planned_peak"] = planned
        engine.close()
        del engine
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    world.close()
    return {"variants": variants}


def _measure(
    engine: DeepSpeedEngine, config: RunConfig, lengths: Sequence[NDArray[np.int64]], vocab: int, updates: int,
    operators: int, waits: bool, device: str,
) -> Figures:  # fmt: skip
    batches = [_micro_batch(pairs, vocab) for pairs in lengths]
    warm_up = max(1, updates // 3)
    losses = [_update(engine, batches[number % len(batches)], number, waits) for number in range(warm_up)]
    wait(device)
    begin = time.perf_counter()
    numbers = range(warm_up, warm_up + updates)
    losses += [_update(engine, batches[number % len(batches)], number, waits) for number in numbers]
    clock = _clock(device)
    wait(device)
    seconds = time.perf_counter() - begin
    timed = [batches[number % len(batches)] for number in numbers]
    return {
        "tokens_per_second": sum(m.num_target_tokens for m in timed) / seconds,
        "seconds_per_update": seconds / updates,
        "megahertz": clock,
        "padding": 1 - sum(map(_tokens, timed)) / sum(m.num_padded_source + m.num_padded_target for m in timed),
        "flops_per_target_token": flops_per_target_token(config.model, vocab, np.concatenate(lengths)),
        **peaks(device),
        "layout": engine.layout_kind,
        "why_padded": engine.why_padded,
        "losses": [float(x) for x in (losses[0], losses[-1])],
        **_parts(engine, batches, device, operators),
    }


def _clock(device: str) -> float | None:
    """The clock of the GPU's multiprocessors in MHz; None where there is no nvidia-smi."""
    if device == "cpu" or shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "--id=0", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"]
    return float(subprocess.run(query, capture_output=True, text=True, check=True).stdout)


def _tokens(micro_batch: MicroBatch) -> int:
    return micro_batch.num_source_tokens + micro_batch.num_target_tokens


def _parts(engine: DeepSpeedEngine, batches: Sequence[MicroBatch], device: str, operators: int) -> Figures:
    """Seconds of a pass on host and device, as a mean over all batches, and the dearest kernels of an update."""
    laid_out = [_batch(engine, micro_batch, 0) for micro_batch in batches]

    def run_all() -> None:
        """Back to back, as in training."""
        for batch in laid_out:
            engine.accumulate(batch, scale=1e-4, is_last=False)

    host = float(np.mean([_host_seconds(engine, batch, device) for batch in laid_out]))
    begin = time.perf_counter()
    run_all()
    wait(device)
    both = (time.perf_counter() - begin) / len(batches)
    profile = profiled(run_all, repetitions=1)
    engine.accumulate(laid_out[0], scale=1e-4, is_last=True)
    engine.step(1e-4)
    dearest = profiled(lambda: _update(engine, batches[0], 0), repetitions=3) if operators else None
    return {
        "host_seconds": host,
        "pass_seconds": both,
        "device_seconds": None if profile.device_seconds is None else profile.device_seconds / len(batches),
        "launches": None if profile.launches is None else profile.launches / len(batches),
        "operators": [dataclasses.asdict(o) for o in dearest.operators[:operators]] if dearest else [],
        "update_device_seconds": dearest.device_seconds if dearest else None,
    }


def _why_not(config: RunConfig, device: str) -> str | None:
    """Why this machine cannot train so; None if it can."""
    if config.engine.precision == "fp16" and device == "cpu":
        return "fp16 needs a card: DeepSpeed has none on a CPU"
    if config.engine.compile and not any(map(shutil.which, (os.environ.get("CC", "gcc"), "g++"))):
        return "engine.compile needs a compiler"
    return None


def _engine(config: RunConfig, vocab: int, precision: Any, world: World) -> DeepSpeedEngine:
    model = build_transformer(config.model, source_vocab_size=vocab, target_vocab_size=vocab, special=SPECIAL, seed=1)
    return DeepSpeedEngine(
        Objective(model, config.loss.build()).train(),
        section=config.engine,
        optimizer=config.optimizer,
        precision=precision,
        device=world.device,
    )


def _micro_batch(lengths: NDArray[np.int64], vocab: int) -> MicroBatch:
    """Random pieces with these lengths (rows, 2), EOS included."""
    rng = np.random.default_rng(1)
    sides = [Ragged.of([rng.integers(4, vocab, n - 1).astype(np.uint32) for n in column]) for column in lengths.T]
    return collate(0, np.arange(len(lengths)), sides[0], sides[1], LENGTH_MULTIPLE)


def _batch(engine: DeepSpeedEngine, micro_batch: MicroBatch, number: int) -> DeviceBatch:
    """As the trainer lays it out."""
    counts = count([micro_batch])
    update = Update(epoch=1, number=number, micro_batches=[micro_batch], counts=counts, seconds=0, seconds_step=0)
    return lay_out(update, engine, seed=1)[0].send()


def _update(engine: DeepSpeedEngine, micro_batch: MicroBatch, number: int, waits: bool = False) -> torch.Tensor:
    """One update; returns the loss of each target token."""
    out = engine.accumulate(_batch(engine, micro_batch, number), scale=1 / micro_batch.num_target_tokens, is_last=True)
    result = engine.step(1e-4)
    if waits and not result.applied:
        raise ValueError("an update is not finite")
    return out.loss_sum / micro_batch.num_target_tokens


def _host_seconds(engine: DeepSpeedEngine, batch: Any, device: str) -> float:
    """Seconds until the host has launched forward and backward of a micro-batch on an idle device."""
    wait(device)
    begin = time.perf_counter()
    engine.accumulate(batch, scale=1e-4, is_last=False)
    return time.perf_counter() - begin
