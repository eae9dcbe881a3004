"""Whether a model computes the same with teacher forcing, as it is trained, and step by step, as a search uses it."""

import torch
from torch import Tensor
from torch.nn import functional as F

from configs import UserError
from configs.plugins import origin_of
from model.transformer import Transformer

LENGTH = 5
"""Tokens of a row of the tiny batch; those of its second row are fewer on the source side."""
MOST_APART = 1e-3
"""Largest difference of log-probabilities, in nats, that is only rounding in fp32."""


def check_steps(model: Transformer) -> None:
    """Check parts that are not zeromt's own: training and translating must be one model.

    Args:
        model: on the CPU, in fp32; it is not changed.

    Raises:
        UserError: they are two, or the parts cannot be used step by step; naming them.
    """
    section = model.section
    parts = (section.attention, section.feed_forward, section.positions, section.norm, section.residual)
    foreign = [f"model.{part.family}: {part.kind}" for part in parts if origin_of(type(part)) is not None]
    if not foreign:
        return
    try:
        apart = steps_apart(model)
    except Exception as error:  # any: it is raised by somebody else's code
        problem = f"cannot be used step by step, as a search does: {type(error).__name__}: {error}"
        raise UserError(f"{', '.join(foreign)}: {problem}") from error
    if apart > MOST_APART:
        raise UserError(
            f"{', '.join(foreign)}: with teacher forcing and step by step, as in a search, log-probabilities of a tiny "
            f"batch are up to {apart:.3g} apart; training and translating would be two models"
        )


@torch.no_grad()
def steps_apart(model: Transformer) -> float:
    """The largest difference of log-probabilities of a tiny batch, with teacher forcing and step by step."""
    length = min(LENGTH, model.max_positions)
    source = _ids(model.source_embedding.tokens.num_embeddings, length, model)
    source[1, (length + 1) // 2 :] = model.special.pad
    target = _ids(model.target_embedding.tokens.num_embeddings, length, model)
    target[:, 0] = model.special.bos
    was_training = model.training
    model.eval()
    try:
        forced = F.log_softmax(model.output(model(source, target)), -1, dtype=torch.float32)
        state = model.start(source)
        stepped = torch.stack([model.step(target[:, position], state) for position in range(length)], 1)
    finally:
        model.train(was_training)
    return float((forced - stepped).abs().max())


def _ids(size: int, length: int, model: Transformer) -> Tensor:
    """Ids (2, length) of a vocabulary, without PAD."""
    ids = (7 * torch.arange(2 * length) + 3) % size
    return torch.where(ids == model.special.pad, model.special.eos, ids).view(2, length)
