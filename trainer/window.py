"""What is summed up between two log steps."""

import math
import time
from typing import Any

import torch

from trainer.batches import UpdateCounts, wrap
from trainer.distributed import World


class LogWindow:
    """Figures of the updates since the last log step."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._losses = torch.zeros(2, dtype=torch.float64)
        self._loss_tokens = 0
        self._counts = [0] * len(UpdateCounts.__dataclass_fields__)
        self._num_updates = 0
        self._num_slots = 0
        self._lr = 0.0
        self._grad_norm: torch.Tensor | float = 0.0
        self._paused = 0.0
        self.waiting_seconds = 0.0
        self.update_seconds: list[float] = []
        self.padded_tokens = 0
        """Of this rank's micro-batches."""

    def add_losses(self, losses: torch.Tensor, target_tokens: int) -> None:
        """Of one update that was applied.

        Args:
            losses: (2,): sums of loss and negative log-likelihood over this rank's micro-batches.
            target_tokens: over all ranks.
        """
        self._losses += losses
        self._loss_tokens += target_tokens

    def add_update(self, counts: UpdateCounts, lr: float, grad_norm: torch.Tensor | float, num_slots: int) -> None:
        """Of one update, over all ranks."""
        self._counts = [a + b for a, b in zip(self._counts, counts.numbers(), strict=True)]
        self._num_updates += 1
        self._num_slots += num_slots
        self._lr, self._grad_norm = lr, grad_norm

    def pause(self, seconds: float) -> None:
        """Leave out time that was not spent training."""
        self._paused += seconds

    def figures(self, world: World) -> dict[str, Any]:
        """Means over the window, over all ranks."""
        loss_sum, nll_sum = world.sum_floats(self._losses.tolist())
        counts = UpdateCounts(**dict(zip(UpdateCounts.__dataclass_fields__, self._counts, strict=True)))
        seconds = max(time.monotonic() - self._begin - self._paused, 1e-9)
        tokens = self._loss_tokens or math.nan  # none where every update was skipped
        nll = nll_sum / tokens
        return {
            "loss": loss_sum / tokens,  # what is trained on: with label smoothing
            "nll": nll,  # without, in nats; its exponential is the perplexity
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
        }
