"""Kernels alone, and updates by the trainer's engine alone, without reader, logs and saves: rate, memory, and time."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.device import kernels
from benchmarks.device.budget_batches import LENGTH_MULTIPLE, sampled
from benchmarks.device.plain_loop import peak_gib, wait
from benchmarks.device.profiling import profiled
from benchmarks.device.work import GIB, Figures, flops_per_target_token, mfu, planned_peak
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


def kernels_alone(*, work: str, device: str, small: bool = False) -> Figures:
    """Each kernel of `benchmarks.device.kernels`: its error in bf16, and its milliseconds and plain torch's."""
    tune_process()
    place = torch.device(device)
    sizes, repetitions = (kernels.SMALL, 1) if small else (kernels.Sizes(), 20)
    return {"rows": [kernels.measure(k, device=place, repetitions=repetitions) for k in kernels.kernels(sizes, place)]}


def measure(
    *,
    work: str,
    device: str,
    run: str,
    tokens: int,
    vocab: int = 37_000,
    updates: int,
    shapes: int = 12,
    settings: Mapping[str, Sequence[str]],
    precision: str,
) -> Figures:
    """Measure a run's model and optimizer on one rank, with lengths like WMT14 English-German's and random pieces.

    Several settings take turns in one process, since the host of a rented card changes from minute to minute.

    Args:
        work: a folder, in which there is no dataset.
        device: cuda or cpu.
        run: name of a shipped run.
        tokens: padded tokens per side of a micro-batch; an update has one.
        vocab: size of the joint vocabulary.
        updates: timed updates; a third as many come before them.
        shapes: different micro-batches, which come again in turn.
        settings: overrides `section.key=value` of the run, by name.
        precision: of the engine.
    """
    tune_process()  # as the trainer does: its allocator, and no attention that plans for every new shape
    world = World(timeout_minutes=2)
    lengths, rows = sampled(tokens, shapes), []
    for name, more in settings.items():
        overrides = [
            f"engine.precision={precision}",
            "evaluation.every_updates=0",
            f"prepare.output={work}/none",
            *more,
        ]
        config = load_run(run, overrides)
        if config.engine.precision == "fp16" and device == "cpu":
            return {"skipped": "fp16 needs a card: DeepSpeed has none on a CPU"}
        engine = _engine(config, vocab, precision, world)
        settle_attention(config, np.concatenate(lengths), engine, world, None)
        figures = _measure(engine, config, lengths, vocab, updates, device)
        planned = planned_peak(run, overrides, tokens=tokens, vocab=vocab)
        rows.append({"setting": name, **figures, "GiB planned": planned / GIB})
        engine.close()
        del engine
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    world.close()
    return {"rows": rows}


def _measure(
    engine: DeepSpeedEngine,
    config: RunConfig,
    lengths: Sequence[NDArray[np.int64]],
    vocab: int,
    updates: int,
    device: str,
) -> Figures:
    batches = [_micro_batch(pairs, vocab) for pairs in lengths]
    warm_up = max(1, updates // 3)
    for number in range(warm_up):
        _update(engine, batches[number % len(batches)], number)
    wait(device)
    begin = time.perf_counter()
    for number in range(warm_up, warm_up + updates):
        _update(engine, batches[number % len(batches)], number)
    wait(device)
    seconds = time.perf_counter() - begin
    timed = [batches[number % len(batches)] for number in range(warm_up, warm_up + updates)]
    rate = sum(m.num_target_tokens for m in timed) / seconds
    filled = sum(m.num_source_tokens + m.num_target_tokens for m in timed)
    return {
        "target tokens/s": rate,
        "MFU": mfu(rate, flops_per_target_token(config.model, vocab, np.concatenate(lengths)), device),
        "ms an update": 1e3 * seconds / updates,
        **_parts(engine, batches, device),
        "attention": engine.layout_kind,
        "padding": 1 - filled / sum(m.num_padded_source + m.num_padded_target for m in timed),
        "GiB": peak_gib(device),
    }


def _parts(engine: DeepSpeedEngine, batches: Sequence[MicroBatch], device: str) -> Figures:
    """Milliseconds of a pass on host and device, as a mean over all batches."""
    laid_out = [_batch(engine, micro_batch, 0) for micro_batch in batches]

    def run_all() -> None:
        """Back to back, as in training."""
        for batch in laid_out:
            engine.accumulate(batch, scale=1e-4, is_last=False)

    host = 0.0
    for batch in laid_out:
        wait(device)
        begin = time.perf_counter()
        engine.accumulate(batch, scale=1e-4, is_last=False)
        host += time.perf_counter() - begin
    wait(device)
    begin = time.perf_counter()
    run_all()
    wait(device)
    both = time.perf_counter() - begin
    busy, launches = (None, None) if device == "cpu" else profiled(run_all, repetitions=1)
    return {
        "host ms": 1e3 * host / len(batches),
        "device ms": None if busy is None else 1e3 * busy / len(batches),
        "pass ms": 1e3 * both / len(batches),
        "kernels": None if launches is None else launches / len(batches),
    }


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


def _update(engine: DeepSpeedEngine, micro_batch: MicroBatch, number: int) -> None:
    engine.accumulate(_batch(engine, micro_batch, number), scale=1 / micro_batch.num_target_tokens, is_last=True)
    engine.step(1e-4)
