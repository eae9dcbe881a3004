"""Greedy search, beam search and sampling with one model or an ensemble, and scoring of given translations."""

from collections.abc import Sequence

import torch
from torch import Tensor

from configs import SearchSection
from model.search.beam import beam_search
from model.search.constraints import Constraints, max_length
from model.search.ensemble import Ensemble
from model.search.greedy import greedy, sample
from model.search.scoring import Hypothesis, length_penalty, score
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
        n_best: number of hypotheses for each sentence, at most the beam; when sampling, the number of samples.
        prefixes: forced target ids at the start of the translations, one list for each row.
        keys: seeds each row's random numbers, such as line numbers; the row numbers by default.

    Returns:
        For each row its hypotheses, best first: `n_best` of them, or all there are if the length limit allows fewer. If
        the model outputs NaN, the only hypothesis is empty and has a NaN score.

    Raises:
        ValueError: n_best exceeds the beam, a source exceeds the model's positions, or a prefix is invalid.
    """
    ensemble = model if isinstance(model, Ensemble) else Ensemble([model])
    if n_best < 1 or (n_best > section.beam and section.sampler is None):
        raise ValueError(f"n_best: {n_best} must be between 1 and beam={section.beam}")
    if source_BS.shape[1] > ensemble.max_positions:
        raise ValueError(f"source: {source_BS.shape[1]} tokens exceed max_positions={ensemble.max_positions}")
    lengths = (source_BS != ensemble.special.pad).sum(1).tolist()
    constraints = Constraints(lengths, section, ensemble, prefixes)
    if section.sampler is not None:
        keys = range(len(lengths)) if keys is None else keys
        return sample(ensemble, source_BS, constraints, section, keys, n_best)
    if section.beam == 1:
        return [[hypothesis] for hypothesis in greedy(ensemble, source_BS, constraints, section)]
    return beam_search(ensemble, source_BS, constraints, section, n_best)
