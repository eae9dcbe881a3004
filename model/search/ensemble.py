"""An ensemble: several models that decode together."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from model.transformer import DecoderState, Transformer


class Ensemble:
    """Averages the next-token probabilities of its models. A single model works too.

    Args:
        models: in evaluation mode, on one device, with equal vocabularies.

    Raises:
        ValueError: no model is given, or the vocabularies differ.
    """

    def __init__(self, models: Sequence[Transformer]) -> None:
        if not models:
            raise ValueError("ensemble: no model; give at least one")
        for side in ("source", "target"):
            sizes = {getattr(m, f"{side}_embedding").tokens.num_embeddings for m in models}
            if len(sizes) > 1:
                raise ValueError(f"ensemble: {side} vocabularies have {sorted(sizes)} pieces; they must be equal")
        assert not any(m.training for m in models), "search needs a model in evaluation mode"
        self.models = list(models)
        self.special = models[0].special
        self.max_positions = min(m.max_positions for m in models)

    def start(self, source_BS: Tensor) -> list[DecoderState]:
        """Encode the sources and start a search; returns the state of each model."""
        return [m.start(source_BS) for m in self.models]

    def step(self, last_N: Tensor, states: Sequence[DecoderState]) -> Tensor:
        """Log-probabilities (N, V) in fp32 of the token after `last_N`; the caller may modify them."""
        return mean_log_probs([m.step(last_N, s) for m, s in zip(self.models, states, strict=True)])


def mean_log_probs(log_probs: Sequence[Tensor]) -> Tensor:
    """Log of the mean of the probabilities whose logs are given, all of the same shape."""
    if len(log_probs) == 1:
        return log_probs[0]
    return torch.stack(list(log_probs)).logsumexp(0) - math.log(len(log_probs))
