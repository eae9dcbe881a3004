"""A translation with its score, the length penalty, and scores of given translations."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from configs import SearchSection
from model.search.ensemble import Ensemble, mean_log_probs
from model.transformer import Transformer


@dataclass(kw_only=True, slots=True, frozen=True)
class Hypothesis:
    """A translation: target ids without BOS and EOS, and their scores."""

    ids: list[int]
    log_prob: float
    """Sum of the tokens' log-probabilities in nats, including a forced prefix and EOS."""
    score: float
    """`log_prob` divided by `length_penalty`."""


def length_penalty(length: int, alpha: float, kind: str = "gnmt") -> float:
    """The divisor for the log-probability of `length` tokens, EOS included; 1 with alpha 0.

    gnmt: ((5 + length) / 6)^alpha (Wu et al., 2016, equation 14). mean: length^alpha; alpha 1 is the mean over tokens.
    """
    return float((length if kind == "mean" else (5 + length) / 6) ** alpha)


CHUNK_ELEMENTS = 1 << 24
"""Logits in memory at once."""


@torch.inference_mode()
def score(
    model: Transformer | Ensemble, source_BS: Tensor, targets: Sequence[Sequence[int]], section: SearchSection
) -> list[Hypothesis]:
    """Score one given translation of each source, as search would score it.

    Args:
        model: in evaluation mode.
        source_BS: source ids, padded, each row with EOS.
        targets: target ids without BOS and EOS.

    Raises:
        ValueError: a source or target exceeds the model's positions.
    """
    ensemble = model if isinstance(model, Ensemble) else Ensemble([model])
    if not targets:
        return []
    special, width = ensemble.special, max(map(len, targets)) + 1
    longest = max(width, source_BS.shape[1])
    if longest > ensemble.max_positions:
        raise ValueError(f"{longest} tokens to score exceed max_positions={ensemble.max_positions}")
    rows = [[special.bos, *t, special.eos, *[special.pad] * (width - 1 - len(t))] for t in targets]
    ids_BT = torch.tensor(rows, dtype=torch.long, device=source_BS.device)
    log_p_BT = mean_log_probs([_token_log_probs(m, source_BS, ids_BT) for m in ensemble.models])
    sums = log_p_BT.double().masked_fill(ids_BT[:, 1:] == special.pad, 0.0).sum(1).tolist()
    return [
        Hypothesis(
            ids=list(t),
            log_prob=total,
            score=total / length_penalty(len(t) + 1, section.length_penalty, section.length_penalty_kind),
        )
        for t, total in zip(targets, sums, strict=True)
    ]


def _token_log_probs(model: Transformer, source_BS: Tensor, ids_BT: Tensor) -> Tensor:
    """Log-probabilities (B, T - 1) of each token given the previous ones."""
    hidden_ND = model(source_BS, ids_BT[:, :-1]).flatten(0, 1)
    next_N1 = ids_BT[:, 1:].flatten()[:, None]
    chunk = max(1, CHUNK_ELEMENTS // model.target_embedding.tokens.num_embeddings)
    parts = [
        F.log_softmax(model.output(hidden_ND[i : i + chunk]), dim=-1, dtype=torch.float32).gather(
            1, next_N1[i : i + chunk]
        )
        for i in range(0, len(next_N1), chunk)
    ]
    return torch.cat(parts).view(len(ids_BT), -1)
