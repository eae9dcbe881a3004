"""What a forward pass keeps, against the tensors that torch saves for the backward pass."""

import dataclasses
from typing import Any, cast

import pytest
import torch
from hypothesis import assume, given, settings

from configs import ModelSection
from model import Objective
from model.flops import BatchShape, Vocabularies
from model.parts import Storage
from tests.zeromt.planning.options import models
from tests.zeromt.planning.test_counts import LOSS, build, ids
from zeromt.planning.activations import activations, output_bytes


def saved_bytes(section: ModelSection, vocabularies: Vocabularies, shape: BatchShape) -> int:
    """Of every storage that autograd saves, but for weights, buffers and token ids. The loss is there too."""
    objective = Objective(build(section, vocabularies, "cpu"), LOSS.build()).train()
    source, target = ids(shape.rows, shape.source), ids(shape.rows, shape.target)
    inputs = (*objective.parameters(), *objective.buffers(), source, target)
    own = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    saved: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        objective(source, target, target)
    selected = 8 * shape.target_tokens  # the numbers of rows that are no padding, which a CPU alone selects
    return sum(storage.nbytes() for storage in saved.values()) - selected


SHAPE = BatchShape(rows=3, source=5, target=7)
CPU = Storage(element=4, mask=4, has_rms_norm=False)
"""Of the kernels in `model/kernels/cpu`, for matmuls too small to be joined."""


@pytest.mark.parametrize("checkpointing", [False, True])
@settings(max_examples=30, deadline=None)
@given(models())
def test_activations_are_what_torch_saves(checkpointing: bool, drawn: tuple[ModelSection, Vocabularies]) -> None:
    """Without what torch's attention keeps more of on a CPU: weights that are dropped, and a copy of its output in the
    order of rotated queries."""
    section, vocabularies = drawn
    assume(section.positions.kind != "rotary")
    attention = dataclasses.replace(cast(Any, section.attention), dropout=0.0)
    section = dataclasses.replace(section, attention=attention, activation_checkpointing=checkpointing)
    layers = activations(section, SHAPE, CPU)
    output = output_bytes(section, LOSS, vocabularies, SHAPE.target_tokens, precision="fp32").kept
    assert sum(layers.kept.values()) + output == saved_bytes(section, vocabularies, SHAPE)
    one = dataclasses.replace(section, encoder_layers=1, decoder_layers=1, activation_checkpointing=False)
    kept = activations(one, SHAPE, CPU).kept
    assert layers.recomputed == (max(kept["encoder"], kept["decoder"]) if checkpointing else 0)
