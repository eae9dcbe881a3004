"""The time of a pass by its layout: of one encoder and one decoder layer, on micro-batches as a run's stream cuts them.

Whole layers, because linear layers, norms and dropout compute padding too where rows are padded.
"""

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from configs import ModelSection, StreamSection
from data_pipeline.order.windows import Budget, plan_window
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.batch import MicroBatch
from data_pipeline.tokenizer import BOS_ID, EOS_ID, PAD_ID
from model import Objective, SpecialIds, build_transformer
from model.kernels import use_kernels
from model.layout import PACKED, LayoutKind
from model.loss import CrossEntropy
from trainer.engines.layouts import laid_out
from trainer.engines.protocol import DeviceBatch

log = logging.getLogger(__name__)

SAMPLED_PAIRS, SAMPLED_MICRO_BATCHES = 8192, 8
"""Pairs of each dataset that are cut into micro-batches, and how many of these are timed."""
WARM_UPS, ROUNDS = 2, 5
VOCABULARY = 64
"""Few pieces: embeddings and loss take as long in every layout."""


def sampled_micro_batches(datasets: Sequence[Dataset], stream: StreamSection, *, seed: int) -> list[MicroBatch]:
    """Micro-batches with the lengths of pairs of the datasets, from those with the shortest rows to the longest."""
    lengths = np.concatenate([dataset.sampled_lengths(SAMPLED_PAIRS) for dataset in datasets])
    plan = plan_window(lengths, Budget.of(stream), seed=seed, place=(0, 0, 0, 0), before=None)
    of_rows = sorted((lengths[plan.micro_batch(n)] for n in range(len(plan))), key=lambda rows: int(rows.max()))
    places = np.linspace(0, len(of_rows) - 1, min(len(of_rows), SAMPLED_MICRO_BATCHES)).astype(int)
    draw = np.random.default_rng(seed)
    return [_micro_batch(of_rows[place].astype(int), stream.length_multiple, draw) for place in places]


def _micro_batch(lengths: NDArray[np.int64], multiple: int, draw: np.random.Generator) -> MicroBatch:
    """Random tokens of pairs with (pairs, 2) pieces."""
    source, target = (_padded(side, multiple, draw) for side in lengths.T)
    inputs = np.where(target == PAD_ID, PAD_ID, np.roll(target, 1, axis=1))
    inputs[:, 0] = BOS_ID
    rows = np.arange(len(lengths))
    return MicroBatch(lane=0, dataset=0, pair_ids=rows, source=source, target_input=inputs, target_output=target)


def _padded(lengths: NDArray[np.int64], multiple: int, draw: np.random.Generator) -> NDArray[np.int64]:
    """Rows of random pieces and EOS."""
    places = np.arange(-(-(int(lengths.max()) + 1) // multiple) * multiple)
    ids = draw.integers(EOS_ID + 1, VOCABULARY, (len(lengths), len(places)))
    ids[places == lengths[:, None]] = EOS_ID
    ids[places > lengths[:, None]] = PAD_ID
    return ids


def milliseconds(
    section: ModelSection,
    micro_batches: Sequence[MicroBatch],
    kinds: Sequence[LayoutKind],
    device: torch.device,
    dtype: torch.dtype,
    *,
    lanes: int,
) -> dict[LayoutKind, float]:
    """Milliseconds of forward and backward passes over all micro-batches, by layout; without those that fail.

    Args:
        section: of the model.
        micro_batches: of different lanes.
        kinds: the layouts.
        device, dtype: of the run.
        lanes: micro-batches that go through the model as one where rows are packed.
    """
    one_layer = dataclasses.replace(section, encoder_layers=1, decoder_layers=1)
    special = SpecialIds(pad=PAD_ID, bos=BOS_ID, eos=EOS_ID)
    sizes = {"source_vocab_size": VOCABULARY, "target_vocab_size": VOCABULARY}
    objective = Objective(build_transformer(one_layer, special=special, seed=1, **sizes), CrossEntropy(0.1)).train()
    use_kernels(objective, device, "cuda")
    objective.to(device, dtype)
    ways: dict[LayoutKind, Callable[[], None]] = {}
    for kind in kinds:
        way = _passes(objective, _batches(micro_batches, kind, device, lanes=lanes))
        try:
            for _ in range(WARM_UPS):
                _seconds(way, device)
            ways[kind] = way
        except RuntimeError as error:  # out of memory, too
            log.warning("engine.attention: not %s, which failed: %s", kind, str(error).splitlines()[:1])
    rounds = [{kind: _seconds(way, device) for kind, way in ways.items()} for _ in range(ROUNDS)]
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return {kind: 1e3 * min(seconds[kind] for seconds in rounds) for kind in ways} if micro_batches else {}


def _batches(
    micro_batches: Sequence[MicroBatch], kind: LayoutKind, device: torch.device, *, lanes: int
) -> list[DeviceBatch]:
    step = lanes if kind in PACKED else 1
    groups = [micro_batches[begin : begin + step] for begin in range(0, len(micro_batches), step)]
    return [laid_out(group, range(len(group)), device, kind=kind) for group in groups]


def _passes(objective: Objective, batches: Sequence[DeviceBatch]) -> Callable[[], None]:
    def run() -> None:
        for batch in batches:
            objective(*batch.arguments())[0].backward()

    return run


def _seconds(run: Callable[[], None], device: torch.device) -> float:
    begin = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begin
