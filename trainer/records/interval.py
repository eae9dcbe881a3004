"""The figures of the interval between two log lines: losses, counts, speed, and how far the machine is used.

Memory and load are those of rank 0's machine at a log step. Reading them never synchronises with the device.
"""

import contextlib
import functools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import psutil
import torch

from configs import RunConfig
from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.phase_data import WEIGHT_ONE
from data_pipeline.tokenizer import PAD_ID
from model.flops import BatchShape, Vocabularies, model_flops
from model.gpus import known_gpu
from model.parts import UndeclaredError
from trainer.engines import Engine
from trainer.engines.batches import Losses, Update, UpdateCounts, weight_units, wrap
from trainer.ranks.device import device_name, kind
from trainer.ranks.distributed import World

MICRO_BATCHES, TOKEN_SHARE, LOSS, LOSS_WEIGHT = "micro_batches/", "token_share/", "loss/", "loss_weight/"
"""Prefixes of the figures of one dataset of a mixture."""
TERA, GIB = 10**12, 2**30


class Work:
    """Counts the FLOPs that micro-batches need, by `model.flops.model_flops`.

    Model FLOPs utilisation (MFU) is defined by Chowdhery et al. (2022), appendix B: recomputation (activation
    checkpointing) and padding do not count. The peak is `training.peak_tflops` or, for a known GPU, that of its data
    sheet; without either there is no MFU.
    """

    def __init__(self, config: RunConfig, engine: Engine) -> None:
        source = engine.parameter_shapes()["source_embedding.tokens.weight"][0]
        target = engine.parameter_shapes().get("target_embedding.tokens.weight", (source,))[0]
        of = (config.model, config.loss, Vocabularies(source=source, target=target))
        self._of_pair = functools.cache(
            lambda source, target: model_flops(*of, BatchShape(rows=1, source=source, target=target))
        )
        known = known_gpu(device_name(engine.device)) if kind(engine.device) == "cuda" else None
        self.peak = config.training.peak_tflops or (None if known is None else known.tflops(engine.precision))
        """Peak of one device in 10^12 FLOP/s; None if it is not known."""

    def flops(self, micro_batch: MicroBatch) -> int:
        """FLOPs of the forward and backward pass; 0 if a part of the model does not state its costs."""
        sources, targets = ((side != PAD_ID).sum(axis=1) for side in (micro_batch.source, micro_batch.target_output))
        try:
            return sum(map(self._of_pair, sources.tolist(), targets.tolist()))
        except UndeclaredError:
            return 0

    def figures(self, flops: float, seconds: float, num_ranks: int) -> Mapping[str, float]:
        """`tflops_per_second` of one device, and `mfu` if the peak is known; empty if no FLOPs were counted.

        Args:
            flops: FLOPs of all ranks.
            seconds: time that they took.
            num_ranks: number of ranks, each with one device.
        """
        if not flops:
            return {}
        reached = flops / seconds / num_ranks / TERA
        return {"tflops_per_second": reached} | ({"mfu": reached / self.peak} if self.peak else {})


class Interval:
    """Figures of the updates since the last log step."""

    def __init__(
        self,
        lanes: int,
        dataset_names: Sequence[str] = (),
        work: Work | None = None,
        *,
        weighs: bool = False,
    ) -> None:
        """Start an empty interval.

        Args:
            lanes: K, the micro-batches of an update.
            dataset_names: names of a mixture's datasets, which get figures of their own; empty for a single dataset.
            work: counts FLOPs; None counts none.
            weighs: whether pairs have weights.
        """
        self._lanes, self._dataset_names, self._work, self._weighs = lanes, dataset_names, work, weighs
        self._flops = 0
        self._by_dataset = np.zeros((len(dataset_names), 5))
        """Micro-batches and target tokens; of applied updates the sum of losses, target tokens and their weights."""
        self._begin = time.monotonic()
        self._losses = torch.zeros(2, dtype=torch.float64)
        self._counts, self._applied = UpdateCounts(), UpdateCounts()
        self._num_updates = 0
        self._lr = 0.0
        self._grad_norm: torch.Tensor | float = 0.0
        self._paused = 0.0
        self.waiting_seconds = 0.0

    def add(self, update: Update, losses: Losses | None, *, lr: float, grad_norm: torch.Tensor | float) -> None:
        """Add an update.

        Args:
            update: with its counts over all ranks, and this rank's micro-batches.
            losses: of these, their sums of loss and negative log-likelihood; None if the update was not applied.
            lr: its learning rate.
            grad_norm: its gradient's.
        """
        self._counts += update.counts
        self._num_updates += 1
        self._lr, self._grad_norm = lr, grad_norm
        if losses is not None:
            self._applied += update.counts
            self._losses += sum(losses.values(), torch.zeros(2, dtype=torch.float64))
        for micro_batch in filter(None, update.micro_batches):
            if self._work is not None:
                self._flops += self._work.flops(micro_batch)
            if self._dataset_names:
                self._add_to_dataset(micro_batch, (losses or {}).get((micro_batch.lane,)))

    def _add_to_dataset(self, micro_batch: MicroBatch, losses: torch.Tensor | None) -> None:
        tokens, of_dataset = micro_batch.num_target_tokens, self._by_dataset[micro_batch.dataset]
        of_dataset[:2] += (1, tokens)
        if losses is not None:
            of_dataset[2:] += (float(losses[0]), tokens, weight_units(micro_batch, tokens) / WEIGHT_ONE)

    def pause(self, seconds: float) -> None:
        """Exclude time that was not spent training, such as an evaluation."""
        self._paused += seconds

    def figures(self, world: World) -> dict[str, Any]:
        """Means over the interval, over all ranks."""
        of_rank = [float(self._flops), *self._losses.tolist(), *self._by_dataset.ravel().tolist()]
        flops, loss_sum, nll_sum, *rest = world.begin_sums([], of_rank)()[1]
        counts, seconds = self._counts, max(time.monotonic() - self._begin - self._paused, 1e-9)
        tokens = self._applied.target_tokens or math.nan  # 0 if every update was skipped
        weight = self._applied.weight_units / WEIGHT_ONE or math.nan
        nll = nll_sum / tokens
        figures = {
            # the training loss, with label smoothing
            "loss": loss_sum / weight,
            "nll": nll,  # without label smoothing, in nats; the perplexity is its exponential
            "perplexity": float(torch.tensor(nll, dtype=torch.float64).exp()),
            "grad_norm": float(self._grad_norm),
            "lr": self._lr,
            "updates": self._num_updates,
            "pairs": counts.pairs,
            "target_tokens": counts.target_tokens,
            "source_tokens": counts.source_tokens,
            "padding": 1 - (counts.target_tokens + counts.source_tokens) / counts.padded_tokens,
            "empty_micro_batches": 1 - counts.micro_batches / (self._num_updates * self._lanes),
            "tokens_per_second": counts.target_tokens / seconds,
            "seconds_per_update": seconds / self._num_updates,
            "waiting_for_data": self.waiting_seconds / seconds,
            "pairs_digest": wrap(counts.pairs_digest),
        }
        if self._work is not None:
            figures |= self._work.figures(flops, seconds, world.size)
        if self._weighs:
            figures["loss_weight"] = weight / tokens
        return figures | self._of_datasets(np.reshape(rest, self._by_dataset.shape).tolist())

    def _of_datasets(self, sums: Sequence[Sequence[float]]) -> dict[str, Any]:
        """Micro-batches, mean loss, fraction of the target tokens and their mean weight of each dataset of a mixture.

        Args:
            sums: `_by_dataset` over all ranks.
        """
        figures: dict[str, Any] = {}
        whole = sum(tokens for _, tokens, *_ in sums) or 1
        for name, (count, tokens, loss, loss_tokens, weight) in zip(self._dataset_names, sums, strict=True):
            figures |= {f"{MICRO_BATCHES}{name}": round(count), f"{TOKEN_SHARE}{name}": tokens / whole}
            if weight > 0:
                figures[f"{LOSS}{name}"] = loss / weight
            if loss_tokens and self._weighs:
                figures[f"{LOSS_WEIGHT}{name}"] = weight / loss_tokens
        return figures


def describe_datasets(figures: Mapping[str, Any]) -> str | None:
    """A line with each dataset's actual proportion of a mixture, largest first, and its loss; None if there is one."""
    proportions = {key.removeprefix(TOKEN_SHARE): figures[key] for key in figures if key.startswith(TOKEN_SHARE)}
    names = sorted(proportions, key=lambda name: -proportions[name])
    said = (f"{name} {proportions[name]:.1%}, loss {figures.get(f'{LOSS}{name}', math.nan):.4f}" for name in names)
    return f"target tokens by dataset: {'; '.join(said)}" if names else None


def machine_figures(device: torch.device) -> dict[str, float]:
    """Memory in GiB and utilisation in percent, of the host and, if there is one, of the GPU.

    `cpu_utilization` is the mean over all cores of the machine since the previous call; 0 at the first.
    """
    figures = {
        "host_memory_gib": psutil.Process().memory_info().rss / GIB,
        "host_memory_free_gib": psutil.virtual_memory().available / GIB,
        "cpu_utilization": psutil.cpu_percent(),
    }
    if kind(device) == "cuda":
        figures["device_memory_allocated_gib"] = torch.cuda.memory_allocated(device) / GIB
        figures["device_memory_peak_gib"] = torch.cuda.max_memory_allocated(device) / GIB
        with contextlib.suppress(Exception):  # no nvidia-ml-py, or a MIG slice: an error here must not end a run
            figures["device_memory_used_gib"] = torch.cuda.device_memory_used(device) / GIB
            figures["device_utilization"] = float(torch.cuda.utilization(device))
    return {key: round(value, 4) for key, value in figures.items()}
