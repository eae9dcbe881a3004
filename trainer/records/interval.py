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
from trainer.ranks.distributed import World
from trainer.records.utilization import Work

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
        self._by_dataset = np.zeros((len(dataset_names), 5))
        """Micro-batches and target tokens; of applied updates the sum of losses, target tokens and their weights."""
        self._begin = time.monotonic()
        self._losses = torch.zeros(2, dtype=torch.float64)
        self._counts, self._applied = UpdateCounts(), UpdateCounts()
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
        self._applied += counts

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
                tokens, of_dataset = micro_batch.num_target_tokens, self._by_dataset[micro_batch.dataset]
                of_dataset[:2] += (1, tokens)
                if (both := losses.get((micro_batch.lane,))) is not None:
                    of_dataset[2:] += (float(both[0]), tokens, weight_units(micro_batch, tokens) / WEIGHT_ONE)

    def pause(self, seconds: float) -> None:
        """Exclude time that was not spent training, such as an evaluation."""
        self._paused += seconds

    def figures(self, world: World) -> dict[str, Any]:
        """Means over the interval, over all ranks."""
        of_rank = [float(self._flops), *self._losses.tolist(), *self._by_dataset.ravel().tolist()]
        flops, loss_sum, nll_sum, *rest = world.sum_floats(of_rank)
        counts, seconds = self._counts, max(time.monotonic() - self._begin - self._paused, 1e-9)
        tokens = self._applied.target_tokens or math.nan  # 0 if every update was skipped
        weight = self._applied.weight_units / WEIGHT_ONE or math.nan
        nll = nll_sum / tokens
        return {
            # the training loss, with label smoothing
            "loss": loss_sum / self._divisor(weight, tokens),
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
            **({} if self._weighed_by is None else {"loss_weight": weight / tokens}),
            **(
                {"augmented": counts.augmented, "fell_back": counts.fell_back}
                if counts.augmented + counts.fell_back
                else {}
            ),
            **self._of_datasets(np.reshape(rest, self._by_dataset.shape).tolist()),
        }

    def figures_of_ranks(self, world: World, forward_seconds: float) -> tuple[dict[str, Any], str | None]:
        """Step-time percentiles and stragglers, and a line about the stragglers; None if there are none.

        Args:
            world: the ranks.
            forward_seconds: time that this rank spent in forward passes.
        """
        forward = world.gather((forward_seconds, self.padded_tokens))
        seconds = [spent / max(tokens, 1) for spent, tokens in forward]
        slow = stragglers(seconds) if max(spent for spent, _ in forward) >= STRAGGLER_SECONDS else {}
        median, p95 = np.quantile(self.update_seconds or [math.nan], [0.5, 0.95]).tolist()
        figures = {"stragglers": [*slow], "update_seconds_median": median, "update_seconds_p95": p95}
        said = (f"rank {r} needs {times:.1f} times the median's seconds for a token" for r, times in slow.items())
        return figures, "; ".join(said) or None

    def _of_datasets(self, sums: Sequence[Sequence[float]]) -> dict[str, Any]:
        """Micro-batches, mean loss, fraction of the target tokens and their mean weight of each dataset of a mixture.

        Args:
            sums: `_by_dataset` over all ranks.
        """
        figures: dict[str, Any] = {}
        whole = sum(tokens for _, tokens, *_ in sums) or 1
        for name, (count, tokens, loss, loss_tokens, weight) in zip(self._dataset_names, sums, strict=True):
            figures |= {f"{MICRO_BATCHES}{name}": round(count), f"{TOKEN_SHARE}{name}": tokens / whole}
            if (divisor := self._divisor(weight, loss_tokens)) > 0:
                figures[f"{LOSS}{name}"] = loss / divisor
            if loss_tokens and self._weighed_by is not None:
                figures[f"{LOSS_WEIGHT}{name}"] = weight / loss_tokens
        return figures

    def _divisor(self, weight: float, tokens: float) -> float:
        """Of a sum of losses."""
        return weight if self._weighed_by == "weights" else tokens


def describe_datasets(figures: Mapping[str, Any]) -> str | None:
    """A line with each dataset's actual proportion of a mixture, largest first, and its loss; None if there is one."""
    proportions = {key.removeprefix(TOKEN_SHARE): figures[key] for key in figures if key.startswith(TOKEN_SHARE)}
    names = sorted(proportions, key=lambda name: -proportions[name])
    said = [f"{n} {proportions[n]:.1%}, loss {figures.get(f'{LOSS}{n}', math.nan):.4f}" for n in names[:MAX_SHOWN]]
    if rest := names[MAX_SHOWN:]:
        said.append(f"{len(rest)} others {sum(proportions[n] for n in rest):.1%}")
    return f"target tokens by dataset: {'; '.join(said)}" if said else None


def stragglers(seconds_per_token_by_rank: Sequence[float], factor: float = 1.5) -> dict[int, float]:
    """Ranks that took more than `factor` times the median time per token, and how many times it.

    With an even number of ranks the lower median is used, so that one slow rank of two is found.

    Args:
        seconds_per_token_by_rank: compute time of each rank over its tokens; for a rank without tokens not finite or 0,
            and then ignored.
        factor: how much slower than the median a rank must be.
    """
    measured = {rank: s for rank, s in enumerate(seconds_per_token_by_rank) if math.isfinite(s) and s > 0}
    median = statistics.median_low(measured.values()) if measured else math.nan
    return {rank: s / median for rank, s in measured.items() if s > factor * median}
