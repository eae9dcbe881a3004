"""Updates by the trainer's engine alone, without reader, logs and saves: rate, memory, and time of host and device."""

import dataclasses
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.device.budget_batches import LENGTH_MULTIPLE, micro_batches
from benchmarks.device.plain_loop import peaks, wait
from benchmarks.device.profiling import profiled
from benchmarks.device.programs import setting_of
from benchmarks.device.work import Figures, flops_per_target_token, planned_peak
from configs import ModelSection, RunConfig, UserError, load_run
from data_pipeline.stream.batch import MicroBatch, Ragged, collate
from model import Objective, SpecialIds, build_transformer
from model.layout import LayoutKind
from trainer.engines.batches import Update, count
from trainer.engines.deepspeed.engine import DeepSpeedEngine
from trainer.engines.layout_times import VOCABULARY, milliseconds
from trainer.engines.layouts import Pass, passes
from trainer.ranks.checks import check_compiler
from trainer.ranks.distributed import World
from trainer.ranks.precision import DTYPES
from trainer.ranks.process import tune_process

SPECIAL = SpecialIds(pad=0, bos=1, eos=2)
PASSES = 5
"""Of which host and device are timed."""


def measure(
    *,
    work: str,
    device: str,
    run: str,
    tokens: int,
    vocab: int,
    updates: int,
    shapes: int = 8,
    settings: Sequence[str] = (),
    precision: str = "bf16",
    operators: int = 0,
    waits: bool = False,
) -> Figures:
    """Measure a run's model and optimizer on one rank, with lengths like WMT14 English-German's and random pieces.

    Args:
        work: not used; every cell gets it.
        device: cuda or cpu.
        run: name of a shipped run.
        tokens: padded tokens per side of a micro-batch; an update has one.
        vocab: size of the joint vocabulary.
        updates: timed updates; a third as many come before them.
        shapes: different micro-batches, which come again in turn.
        settings: overrides `section.key=value` of the run.
        precision: of the engine.
        operators: how many of the dearest operators to return.
        waits: whether the host reads the norm of an update before it begins the next, so that the device runs dry.
    """
    tune_process()  # as the trainer does: its allocator, and no attention that plans for every new shape
    config = load_run(run, [f"engine.precision={precision}", "evaluation.every_updates=0", *settings])
    if (why := _why_not(config, device)) is not None:
        return {"skipped": why}
    all_lengths = micro_batches(tokens)
    lengths = all_lengths[:: max(1, len(all_lengths) // shapes)][:shapes]
    world = World(timeout_minutes=2)
    engine = _engine(config, vocab, precision, world)
    batches = [_micro_batch(pairs, vocab) for pairs in lengths]
    times = _choose_layout(engine, config.model, lengths)
    warm_up = max(1, updates // 3)
    losses = [_update(engine, batches[number % len(batches)], number, waits) for number in range(warm_up)]
    wait(device)
    begin = time.perf_counter()
    numbers = range(warm_up, warm_up + updates)
    losses += [_update(engine, batches[number % len(batches)], number, waits) for number in numbers]
    wait(device)
    seconds = time.perf_counter() - begin
    timed = [batches[number % len(batches)] for number in numbers]
    found = {
        "tokens_per_second": sum(m.num_target_tokens for m in timed) / seconds,
        "seconds_per_update": seconds / updates,
        "padding": 1 - sum(map(_tokens, timed)) / sum(m.num_padded_source + m.num_padded_target for m in timed),
        "flops_per_target_token": flops_per_target_token(config.model, vocab, np.concatenate(lengths)),
        **peaks(device),
        "planned_peak": planned_peak(config, setting_of(config), vocab=vocab, tokens=tokens, precision=precision),
        "layout": engine.layout_kind,
        "why_padded": engine.why_padded,
        "layout_ms": times,
        "losses": [float(x) for x in (losses[0], losses[-1])],
        **_parts(engine, batches, device, operators),
    }
    engine.close()
    world.close()
    return found


def _choose_layout(
    engine: DeepSpeedEngine, section: ModelSection, lengths: Sequence[NDArray[np.int64]]
) -> dict[LayoutKind, float]:
    """Give the engine the layout that a run would take; the milliseconds by which it does, if it has a choice."""
    possible = [kind for kind, why in engine.layouts.items() if not why]
    if len(possible) == 1:
        return {}
    batches = [_micro_batch(pairs, VOCABULARY) for pairs in lengths]
    times = milliseconds(section, batches, possible, engine.device, DTYPES[engine.precision], lanes=1)
    engine.layout_kind = min(times, key=lambda kind: times[kind])
    return times


def _tokens(micro_batch: MicroBatch) -> int:
    return micro_batch.num_source_tokens + micro_batch.num_target_tokens


def _parts(engine: DeepSpeedEngine, batches: Sequence[MicroBatch], device: str, operators: int) -> Figures:
    """Seconds of a pass on host and device, and the dearest operators of an update."""
    passing = [_time_pass(engine, batches[0], device) for _ in range(PASSES)]
    batch = _pass(engine, batches[0], 0).batch
    one_pass = profiled(lambda: engine.accumulate(batch, scale=1e-4, is_last=False), repetitions=3)
    engine.accumulate(batch, scale=1e-4, is_last=True)
    engine.step(1e-4)
    dearest = profiled(lambda: _update(engine, batches[0], 0), repetitions=3) if operators else None
    return {
        "host_seconds": float(np.median([host for host, _ in passing])),
        "pass_seconds": float(np.median([both for _, both in passing])),
        "device_seconds": one_pass.device_seconds,
        "launches": one_pass.launches,
        "operators": [dataclasses.asdict(o) for o in dearest.operators[:operators]] if dearest else [],
        "update_device_seconds": dearest.device_seconds if dearest else None,
    }


def _why_not(config: RunConfig, device: str) -> str | None:
    """Why this machine cannot train so; None if it can."""
    if config.engine.precision == "fp16" and device == "cpu":
        return "fp16 needs a card: DeepSpeed has none on a CPU"
    try:
        if config.engine.compile:
            check_compiler(os.environ, has_gpu=device == "cuda")
    except UserError as error:
        return str(error)
    return None


def _engine(config: RunConfig, vocab: int, precision: Any, world: World) -> DeepSpeedEngine:
    model = build_transformer(config.model, source_vocab_size=vocab, target_vocab_size=vocab, special=SPECIAL, seed=1)
    return DeepSpeedEngine(
        Objective(model, config.loss.build()).train(),
        section=config.engine,
        optimizer=config.optimizer,
        precision=precision,
        device=world.device,
        world_size=world.size,
    )


def _micro_batch(lengths: NDArray[np.int64], vocab: int) -> MicroBatch:
    """Random pieces with these lengths (rows, 2), EOS included."""
    rng = np.random.default_rng(1)
    sides = [Ragged.of([rng.integers(4, vocab, n - 1).astype(np.uint32) for n in column]) for column in lengths.T]
    return collate(0, np.arange(len(lengths)), sides[0], sides[1], LENGTH_MULTIPLE)


def _pass(engine: DeepSpeedEngine, micro_batch: MicroBatch, number: int) -> Pass:
    """As the trainer lays it out."""
    counts = count([micro_batch])
    update = Update(epoch=1, number=number, micro_batches=[micro_batch], counts=counts, seconds=0, seconds_step=0)
    return passes(update, engine, seed=1)[0]


def _update(engine: DeepSpeedEngine, micro_batch: MicroBatch, number: int, waits: bool = False) -> torch.Tensor:
    """One update; returns the loss of each target token."""
    out = engine.accumulate(
        _pass(engine, micro_batch, number).batch, scale=1 / micro_batch.num_target_tokens, is_last=True
    )
    result = engine.step(1e-4)
    if waits and not result.applied:
        raise ValueError("an update is not finite")
    return out.loss_sum / micro_batch.num_target_tokens


def _time_pass(engine: DeepSpeedEngine, micro_batch: MicroBatch, device: str) -> tuple[float, float]:
    """Seconds until the host has launched forward and backward of a micro-batch, and until the device is done."""
    batch = _pass(engine, micro_batch, 0).batch
    wait(device)
    begin = time.perf_counter()
    engine.accumulate(batch, scale=1 / micro_batch.num_target_tokens, is_last=True)
    host = time.perf_counter() - begin
    wait(device)
    both = time.perf_counter() - begin
    engine.step(1e-4)
    return host, both
