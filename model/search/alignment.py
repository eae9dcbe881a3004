"""Cross-attention weights of a translation, and word alignments from them."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.transformer import Transformer

Weights = NDArray[np.float32]


def default_layer(num_layers: int) -> int:
    """The decoder layer, counted from 1, that alignments use: the middle one (Chen et al., 2020, section 5)."""
    return (num_layers + 1) // 2


@torch.inference_mode()
def cross_attention(model: Transformer, source_BS: Tensor, targets: Sequence[Sequence[int]]) -> list[Weights]:
    """Cross-attention weights, averaged over heads, when each target is decoded with teacher forcing.

    Args:
        source_BS: source ids, padded, each row with EOS.
        targets: target ids without BOS and EOS, one list for each row.

    Returns:
        For each row (layers, T + 1, S) without padding: position 0 reads BOS and predicts the first target token,
        position t reads the t-th token and predicts the next.
    """
    special, width = model.special, max(map(len, targets), default=0) + 1
    rows = [[special.bos, *t, *[special.pad] * (width - 1 - len(t))] for t in targets]
    ids_BT = torch.tensor(rows, dtype=torch.long, device=source_BS.device).view(-1, width)
    layers = model.attention_weights(source_BS, ids_BT).cross
    weights_BLTS = torch.stack([w.float().mean(1) for w in layers], dim=1).cpu().numpy()
    lengths = (source_BS != special.pad).sum(1).tolist()
    return [weights_LTS[:, : len(t) + 1, :n] for weights_LTS, t, n in zip(weights_BLTS, targets, lengths, strict=True)]


def align_words(weights_TS: Weights, source_words: Sequence[int], target_words: Sequence[int]) -> list[tuple[int, int]]:
    """Aligns each target word to the source word with the most attention: pairs (source word, target word).

    A piece's attention is taken from the position that reads it, which aligns better than the position that predicts it
    (Chen et al., 2020, 'Shift-Att'). Attention is summed over the pieces of a source word and averaged over those of a
    target word.

    Args:
        weights_TS: a row for each target piece, a column for each source piece.
        source_words, target_words: word number of each piece; -1 for special pieces, which belong to no word.
    """
    num_source, num_target = max(source_words, default=-1) + 1, max(target_words, default=-1) + 1
    if not num_source or not num_target:
        return []
    of_source = np.array(source_words)[:, None] == np.arange(num_source)
    of_target = np.array(target_words)[:, None] == np.arange(num_target)
    sums = of_target.T @ weights_TS @ of_source  # summing over target pieces has the same argmax as averaging
    return [(int(i), j) for j, i in enumerate(sums.argmax(1))]
