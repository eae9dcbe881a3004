"""Which source a translation looked at: cross attention, and hard alignments from it."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.transformer import Transformer

Weights = NDArray[np.float32]


def default_layer(num_layers: int) -> int:
    """The decoder layer, from 1, that alignments are taken from: the middle one (Chen et al., 2020, section 5)."""
    return (num_layers + 1) // 2


@torch.inference_mode()
def cross_attention(model: Transformer, source_BS: Tensor, targets: Sequence[Sequence[int]]) -> list[Weights]:
    """The mean over heads of the attention to the source, while each target is decoded.

    Args:
        source_BS: source ids, padded, each row with EOS.
        targets: target ids without BOS and EOS, one list for each row.

    Returns:
        For each row (layers, T + 1, S) without padding: position 0 reads BOS and predicts the first token of
        the target, position t reads its t-th token and predicts what follows it.
    """
    special, width = model.special, max(map(len, targets), default=0) + 1
    rows = [[special.bos, *t, *[special.pad] * (width - 1 - len(t))] for t in targets]
    ids_BT = torch.tensor(rows, dtype=torch.long, device=source_BS.device).view(-1, width)
    layers = model.attention_weights(source_BS, ids_BT).cross
    weights_BLTS = torch.stack([w.float().mean(1) for w in layers], dim=1).cpu().numpy()
    lengths = (source_BS != special.pad).sum(1).tolist()
    return [weights_LTS[:, : len(t) + 1, :n] for weights_LTS, t, n in zip(weights_BLTS, targets, lengths, strict=True)]


def align_words(weights_TS: Weights, source_words: Sequence[int], target_words: Sequence[int]) -> list[tuple[int, int]]:
    """The source word that each target word looks at most, as (source word, target word), by target word.

    A piece's row is that of the position which reads it, which aligns better than the one which predicts it (Chen et
    al., 2020, 'Shift-Att'). A word's pieces are added up on the source side and averaged on the target side.

    Args:
        weights_TS: a row for each target piece, a column for each source piece.
        source_words, target_words: the number of each piece's word; -1 for marks, which belong to none.
    """
    num_source, num_target = max(source_words, default=-1) + 1, max(target_words, default=-1) + 1
    if not num_source or not num_target:
        return []
    of_source = np.array(source_words)[:, None] == np.arange(num_source)
    of_target = np.array(target_words)[:, None] == np.arange(num_target)
    sums = of_target.T @ weights_TS @ of_source  # a sum over the pieces of a target word has the same maximum
    return [(int(i), j) for j, i in enumerate(sums.argmax(1))]
