"""What a forward pass keeps, against the tensors that torch saves for the backward pass."""

import dataclasses

import torch
from hypothesis import given, settings

from configs import ModelSection
from launcher.planning import activations as planned
from launcher.planning.activations import FP32_CPU, activations
from launcher.planning.flops import Shape
from launcher.planning.parameters import Vocabularies
from model import loss
from tests.launcher.planning.options import models
from tests.launcher.planning.test_counts import build, ids


def saved_bytes(section: ModelSection, vocabularies: Vocabularies, shape: Shape) -> int:
    """Of every storage that autograd saves, but for weights and buffers. Without the output layer."""
    model = build(section, vocabularies, "cpu").train()
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    source, target = ids(shape.rows, shape.source), ids(shape.rows, shape.target)
    own |= {source.untyped_storage().data_ptr(), target.untyped_storage().data_ptr()}
    saved: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(source, target)
    return sum(storage.nbytes() for storage in saved.values())


@settings(max_examples=60, deadline=None)
@given(models())
def test_activations_are_what_torch_saves(drawn: tuple[ModelSection, Vocabularies]) -> None:
    section = dataclasses.replace(drawn[0], activation_checkpointing=False)
    shape = Shape(rows=3, source=5, target=7)
    measured = saved_bytes(section, drawn[1], shape)
    assert activations(section, shape, precision="fp32", kernels=FP32_CPU).total == measured


def test_the_size_of_a_chunk_of_logits_is_that_of_the_loss() -> None:
    assert planned.DEVICE_CHUNK_ELEMENTS == loss.DEVICE_CHUNK_ELEMENTS
