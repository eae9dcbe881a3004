"""Greedy and beam search, sampling, with one model or several; and scores of translations that are given."""

from collections.abc import Sequence

import torch
from torch import Tensor

from configs import SearchSection
from model.search.beam import beam_search
from model.search.constraints import Constraints, max_length
from model.search.ensemble import Ensemble
from model.search.greedy import greedy, sample
from model.search.hypothesis import Hypothesis, length_penalty
from model.search.scoring import score
from model.transformer import Transformer

__all__ = ["Ensemble", "Hypothesis", "length_penalty", "max_length", "score", "search"]


@torch.inference_mode()
def search(
    model: Transformer | Ensemble,
    source_BS: Tensor,
    section: SearchSection,
    *,
    n_best: int = 1,
    prefixes: Sequence[Sequence[int]] | None = None,
    keys: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """Translate a batch.

    Args:
        model: in evaluation mode.
        source_BS: source ids, padded, each row with EOS; every row holds at least one token.
        n_best: hypotheses wanted for each sentence, at most the beam; of a sampled one, so many independent samples.
        prefixes: target ids that the translations begin with, one list for each row.
        keys: numbers that tell the rows' random draws apart, such as line numbers; the rows' own unless given.

    Returns:
        For each row, in order, its hypotheses with the best first: `n_best` of them, or all there are where the limit
        of length allows fewer. A model that gives NaN has the empty hypothesis, with a score of NaN.

    Raises:
        ValueError: n_best is more than the beam, a source is longer than the model's positions, or a prefix is wrong.
    """
    ensemble = model if isinstance(model, Ensemble) else Ensemble([model])
    if n_best < 1 or (n_best > section.beam and section.sampler is None):
        raise ValueError(f"n_best: {n_best} is not allowed with beam={section.beam}; allowed is 1 to the beam")
    if source_BS.shape[1] > ensemble.max_positions:
        raise ValueError(
            f"source: {source_BS.shape[1]} tokens; allowed is at most max_positions={ensemble.max_positions}"
        )
    lengths = (source_BS != ensemble.special.pad).sum(1).tolist()
    constraints = Constraints(lengths, section, ensemble, prefixes)
    if section.sampler is not None:
        keys = range(len(lengths)) if keys is None else keys
        return sample(ensemble, source_BS, constraints, section, keys, n_best)
    if section.beam == 1:
        return [[hypothesis] for hypothesis in greedy(ensemble, source_BS, constraints, section)]
    return beam_search(ensemble, source_BS, constraints, section, n_best)
