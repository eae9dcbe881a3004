"""The figures of the interval between two log lines, ranks that were slow in it, percentiles of the step time."""

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch

from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.pair_weights import WEIGHT_ONE
from trainer.engines.batches import Losses, UpdateCounts, weight_units, wrap
from trainer.engines.update_sizes import UpdateSizes, ratios
from trainer.ranks.distributed import World
from trainer.records.utilization import Work

UPDATE_RATIO = "update_ratio/"
"""Prefix of a figure of one part of the model; the parts are those of `update_sizes.PARTS`."""
MICRO_BATCHES, TOKEN_SHARE, LOSS, LOSS_WEIGHT = "micro_batches/", "token_share/", "loss/", "loss_weight/"
"""Prefixes of the figures of one dataset of a mixture."""
STRAGGLER_SECONDS = 1.0
"""Ranks are compared only if one spent at least this long in forward passes; shorter times are noise."""
MAX_SHOWN = 8
"""Datasets listed in the printed line; metrics.jsonl and TensorBoard have all of them."""


class Interval:
    """Figures of the updates since the last log step."""

    def __init__(
        self,
        dataset_names: Sequence[str] = (),
        work: Work | None = None,
        weighed_by: Literal["weights", "tokens"] | None = None,
    ) -> None:
        """Start an empty interval.

        Args:
            dataset_names: names of a mixture's datasets, which get figures of their own; empty for a single dataset.
            work: counts FLOPs; None counts none.
            weighed_by: `training.normalize_by`, where pairs have weights; None elsewhere.
        """
        self._dataset_names = dataset_names
        self._work = work
        self._weighed_by = weighed_by
        self._flops = 0
        self.sizes: UpdateSizes | None = None
        """Sizes of the last update; None if it was not applied. Set on every rank or on none."""
        self._by_dataset = np.zeros((2, len(dataset_names)), dtype=np.int64)
        self._losses_by_dataset = np.zeros((3, len(dataset_names)))
        self._begin = time.monotonic()
        self._losses = torch.zeros(2, dtype=torch.float64)
        self._loss_tokens = 0
        self._loss_weight = 0.0
        self._counts = UpdateCounts()
        self._num_updates = 0
        self._num_slots = 0
        self._lr = 0.0
        self._grad_norm: torch.Tensor | float = 0.0
        self._paused = 0.0
        self.waiting_seconds = 0.0
        self.update_seconds: list[float] = []
        self.padded_tokens = 0
        """Number of tokens, padding included, in this rank's micro-batches."""

    def add_losses(self, losses: torch.Tensor, counts: UpdateCounts) -> None:
        """Add the losses of one applied update.

        Args:
            losses: (2,): sums of loss and negative log-likelihood over this rank's micro-batches.
            counts: of the update, over all ranks.
        """
        self._losses += losses
        self._loss_tokens += counts.target_tokens
        self._loss_weight += counts.weight_units / WEIGHT_ONE

    def add_update(self, counts: UpdateCounts, lr: float, grad_norm: torch.Tensor | float, num_slots: int) -> None:
        """Add the counts of one update over all ranks."""
        self._counts += counts
        self._num_updates += 1
        self._num_slots += num_slots
        self._lr, self._grad_norm = lr, grad_norm

    def add_batches(self, micro_batches: Sequence[MicroBatch | None], losses: Losses) -> None:
        """Add the FLOPs of this rank's micro-batches, and in a mixture the tokens and losses of each dataset.

        Args:
            micro_batches: this rank's micro-batches of one update.
            losses: their losses; empty if the update was not applied.
        """
        if self._work is not None:
            self._flops += sum(map(self._work.flops, filter(None, micro_batches)))
        if self._dataset_names:
            for micro_batch in filter(None, micro_batches):
                tokens = micro_batch.num_target_tokens
                self._by_dataset[:, micro_batch.dataset] += (1, tokens)
                if (both := losses.get((micro_batch.lane,))) is not None:
                    weight = weight_units(micro_batch, tokens) / WEIGHT_ONE
                    self._losses_by_dataset[:, micro_batch.dataset] += (float(both[0]), tokens, weight)

    def pause(self, seconds: float) -> None:
        """Exclude time that was not spent training, such as an evaluation."""
        self._paused += seconds

    def figures(self, world: World) -> dict[str, Any]:
        """Means over the interval, over all ranks."""
        sizes = [] if self.sizes is None else self.sizes.sums()
        flops, loss_sum, nll_sum, *sizes = world.sum_floats([float(self._flops), *self._losses.tolist(), *sizes])
        counts, seconds = self._counts, max(time.monotonic() - self._begin - self._paused, 1e-9)
        tokens = self._loss_tokens or math.nan  # 0 if every update was skipped
        nll, weight = nll_sum / tokens, self._loss_weight or math.nan
        return {
            # the training loss, with label smoothing
            "loss": loss_sum / (tokens if self._weighed_by is None else self._divisor(weight, tokens)),
            "nll": nll,  # without label smoothing, in nats; the perplexity is its exponential
            "perplexity": float(torch.tensor(nll, dtype=torch.float64).exp()),
            "grad_norm": float(self._grad_norm),
            "lr": self._lr,
            "updates": self._num_updates,
            "pairs": counts.pairs,
            "target_tokens": counts.target_tokens,
            "source_tokens": counts.source_tokens,
            "padding": 1 - (counts.target_tokens + counts.source_tokens) / counts.padded_tokens,
            "empty_micro_batches": 1 - counts.micro_batches / self._num_slots,
            "tokens_per_second": counts.target_tokens / seconds,
            "seconds_per_update": seconds / self._num_updates,
            "waiting_for_data": self.waiting_seconds / seconds,
            "pairs_digest": wrap(counts.pairs_digest),
            **({} if self._work is None else self._work.figures(flops, seconds, world.size)),
            **({f"{UPDATE_RATIO}{part}": ratio for part, ratio in ratios(sizes).items()} if sizes else {}),
            **({} if self._weighed_by is None else {"loss_weight": weight / tokens}),
            **_of_augmentation(counts),
            **self._of_datasets(world),
        }

    def figures_of_ranks(self, world: World, forward_seconds: float) -> tuple[dict[str, Any], str | None]:
        """Step-time percentiles and stragglers, and a line about the stragglers; None if there are none.

        Args:
            world: the ranks.
            forward_seconds: time that this rank spent in forward passes.
        """
        forward = world.gather((forward_seconds, self.padded_tokens))
        seconds = [spent / max(tokens, 1) for spent, tokens in forward]
        slow = stragglers(seconds) if max(spent for spent, _ in forward) >= STRAGGLER_SECONDS else []
        median, p95 = step_times(self.update_seconds)
        figures = {"stragglers": slow, "update_seconds_median": median, "update_seconds_p95": p95}
        return figures, describe_stragglers(seconds, slow) if slow else None

    def _of_datasets(self, world: World) -> dict[str, Any]:
        """Micro-batches, mean loss, fraction of the target tokens and their mean weight of each dataset of a mixture,
        over all ranks."""
        if not self._dataset_names:
            return {}
        counts, tokens = np.reshape(world.sum(self._by_dataset.ravel().tolist()), self._by_dataset.shape).tolist()
        figures: dict[str, Any] = {f"{MICRO_BATCHES}{n}": c for n, c in zip(self._dataset_names, counts, strict=True)}
        whole = sum(tokens) or 1
        sums = np.reshape(world.sum_floats(self._losses_by_dataset.ravel().tolist()), self._losses_by_dataset.shape)
        for name, loss, num_tokens, weight in zip(self._dataset_names, *sums.tolist(), strict=True):
            if (divisor := self._divisor(weight, num_tokens)) > 0:
                figures[f"{LOSS}{name}"] = loss / divisor
            if num_tokens and self._weighed_by is not None:
                figures[f"{LOSS_WEIGHT}{name}"] = weight / num_tokens
        return figures | {f"{TOKEN_SHARE}{n}": t / whole for n, t in zip(self._dataset_names, tokens, strict=True)}

    def _divisor(self, weight: float, tokens: float) -> float:
        """Of a sum of losses."""
        return tokens if self._weighed_by == "tokens" else weight


def _of_augmentation(counts: UpdateCounts) -> dict[str, int]:
    """How many pairs were augmented, and how many stayed plain because the result could not be used; often empty."""
    if counts.augmented == counts.fell_back == 0:
        return {}
    return {"augmented": counts.augmented, "fell_back": counts.fell_back}


def describe_datasets(figures: Mapping[str, Any]) -> str | None:
    """A line with each dataset's actual proportion of a mixture, largest first, and its loss; None if there is one."""
    proportions = {key.removeprefix(TOKEN_SHARE): figures[key] for key in figures if key.startswith(TOKEN_SHARE)}
    if not proportions:
        return None
    names = sorted(proportions, key=lambda name: -proportions[name])
    shown = [f"{n} {proportions[n]:.1%} in {figures[f'{MICRO_BATCHES}{n}']}" for n in names[:MAX_SHOWN]]
    if rest := names[MAX_SHOWN:]:
        count = sum(figures[f"{MICRO_BATCHES}{n}"] for n in rest)
        shown.append(f"{len(rest)} others {sum(proportions[n] for n in rest):.1%} in {count}")
    losses = ", ".join(f"{n} {figures[f'{LOSS}{n}']:.4f}" for n in names[:MAX_SHOWN] if f"{LOSS}{n}" in figures)
    return f"target tokens by dataset: {', '.join(shown)} micro-batches{f'; loss: {losses}' if losses else ''}"


def stragglers(seconds_per_token_by_rank: Sequence[float], factor: float = 1.5) -> list[int]:
    """Ranks that took more than `factor` times the median time per token.

    With an even number of ranks the lower median is used, so that one slow rank of two is found.

    Args:
        seconds_per_token_by_rank: compute time of each rank over its tokens; for a rank without tokens not finite or 0,
            and then ignored.
        factor: how much slower than the median a rank must be.
    """
    measured = [s for s in seconds_per_token_by_rank if math.isfinite(s) and s > 0]
    if len(measured) < 2:
        return []
    limit = factor * statistics.median_low(measured)
    return [rank for rank, s in enumerate(seconds_per_token_by_rank) if math.isfinite(s) and s > limit]


def describe_stragglers(seconds_per_token_by_rank: Sequence[float], ranks: Sequence[int]) -> str:
    """The log's words for them: `rank 3 needs 2.1 times the median's seconds for a token`."""
    median = statistics.median_low([s for s in seconds_per_token_by_rank if math.isfinite(s) and s > 0])
    return "; ".join(
        f"rank {rank} needs {seconds_per_token_by_rank[rank] / median:.1f} times the median's seconds for a token"
        for rank in ranks
    )


def step_times(seconds: Sequence[float]) -> tuple[float, float]:
    """Median and 95th percentile (nearest rank) of the seconds of updates; NaN without updates."""
    if not seconds:
        return math.nan, math.nan
    ordered = sorted(seconds)
    return statistics.median(ordered), ordered[math.ceil(0.95 * len(ordered)) - 1]
