"""Counts the kernels of a micro-batch of the model without an engine, on the pseudo device."""

import torch

from configs import ModelSection
from model import Objective, SpecialIds, build_transformer
from model.flops import BatchShape
from model.kernels import use_kernels
from model.layout import first_possible
from model.loss import CrossEntropy
from tests.device.meter import Meter
from tests.device.pseudo import DEVICE, metered
from trainer.engines.layouts import full_batch

SPECIAL = SpecialIds(pad=0, bos=1, eos=2)


SMALL = BatchShape(rows=4, source=8, target=8)
"""The number of kernels does not depend on the shape, except that a large micro-batch has more chunks of logits."""


def count_model(section: ModelSection, *, shape: BatchShape, vocab: int, kernels: str = "plain") -> tuple[Meter, Meter]:
    """Count forward and backward of a micro-batch in bf16; `kernels` as in `model.kernels.use_kernels`.

    A packed micro-batch has rows x length tokens, without padding.
    """
    objective = make_objective(section, vocab).bfloat16()
    use_kernels(objective, DEVICE, kernels)
    objective.to(DEVICE)
    kind, _ = first_possible(objective.layouts(DEVICE, torch.bfloat16))
    batch = full_batch(shape.rows, shape.source, shape.target, DEVICE, kind)
    with metered() as forward:
        out = objective(*batch.arguments())
    with metered() as backward:
        out.loss_sum.backward()
    return forward, backward


def make_objective(section: ModelSection, vocab: int) -> Objective:
    """The training objective of the model, in training mode."""
    model = build_transformer(section, source_vocab_size=vocab, target_vocab_size=vocab, special=SPECIAL, seed=1)
    return Objective(model, CrossEntropy(0.1)).train()
