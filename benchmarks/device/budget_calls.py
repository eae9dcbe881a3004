"""Counts the Python calls of a pass: exact numbers, whatever the machine's load.

All kernels are replaced by some that only make their results, and tensors are tiny ones of the CPU: what is left is
what the host does for the kernels of a GPU, without the driver's part and Triton's own.
"""

import cProfile
import gc
import pstats
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from benchmarks.device.budget_model import make_objective
from configs import ModelSection, preset_model
from data_pipeline.stream.batch import MicroBatch
from model.kernels import use_kernels
from model.kernels.cuda import attention, ways
from trainer.engines.layouts import stage

WIDTH, VOCAB, ROWS, LENGTH = 16, 64, 3, 5
CPU = torch.device("cpu")
KERNELS = ("cuda", "plain")


def count_pass(preset: str, kernels: str) -> int:
    """Python calls of forward and backward of a micro-batch `without_kernels`.

    Args:
        preset: of the model; only its depth and parts matter, its widths are replaced by tiny ones.
        kernels: as in `model.kernels.use_kernels`.
    """
    once = one_pass(preset, kernels)
    once()
    gc.collect()
    gc.disable()  # what it frees of others may call something
    profile = cProfile.Profile()
    try:
        profile.enable()
        once()
        profile.disable()
    finally:
        gc.enable()
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def one_pass(preset: str, kernels: str) -> Callable[[], None]:
    """A function that makes a pass of a tiny batch."""
    ids = np.full((ROWS, LENGTH), 5)
    lane = MicroBatch(lane=0, dataset=0, pair_ids=np.arange(ROWS), source=ids, target_input=ids, target_output=ids)
    objective = make_objective(_tiny(preset), VOCAB)
    use_kernels(objective, CPU, kernels)
    batch = stage([lane], [1], CPU, kind="flash" if kernels == "cuda" else "padded")()
    more = (batch.layout,) if kernels == "cuda" else ()

    def once() -> None:
        objective(batch.source, batch.target_input, batch.target_output, *more)[0].backward()

    return once


def _tiny(preset: str) -> ModelSection:
    small = {
        "d_model": WIDTH,
        "attention": {"kind": "multi_head", "num_heads": 2},
        "feed_forward": {"kind": "relu", "d_ff": WIDTH},
    }
    return preset_model(preset, small)


@contextmanager
def without_kernels() -> Iterator[None]:
    """A context in which the operators of GPU kernels only make their results on the CPU, and attention is a GPU's."""
    ours, aten = (torch.library.Library(name, "IMPL") for name in ("zeromt", "aten"))  # type: ignore[no-untyped-call]
    for name, function in {
        "residual_norm": _norm,
        "residual_norm_backward": _norm_backward,
        "relu_backward": lambda grad, out: (torch.empty_like(out), out.new_empty(out.shape[1])),
        "cross_entropy_": lambda *_: None,
        "drop": lambda x, *_: torch.empty_like(x),
    }.items():
        ours.impl(name, function, "CPU", allow_override=True)  # type: ignore[no-untyped-call]
    aten.impl("_flash_attention_forward", _attention, "CPU")  # type: ignore[no-untyped-call]
    aten.impl("_flash_attention_backward", _attention_backward, "CPU")  # type: ignore[no-untyped-call]
    try:
        with (
            mock.patch.object(ways, "has_operators", _yes),
            mock.patch.object(attention, "has_operators", _yes),
        ):
            yield
    finally:
        for library in (ours, aten):
            library._destroy()  # type: ignore[no-untyped-call]


def _yes(*_: Any) -> bool:
    return True


def _norm(x: Tensor, *_: Any) -> tuple[Tensor, ...]:
    numbers = x.new_empty(x.shape[:-1].numel(), dtype=torch.float32)
    return torch.zeros_like(x), torch.zeros_like(x), numbers, torch.empty_like(numbers)


def _norm_backward(
    grad: Tensor, more: Any, summed: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor, tokens: Tensor | None, *_: Any
) -> tuple[Tensor, ...]:
    second = summed.new_empty(0) if tokens is None else torch.empty_like(summed)
    return torch.empty_like(summed), second, weight.new_empty((3, weight.shape[0]))


def _attention(query: Tensor, *_: Any, **__: Any) -> tuple[Tensor, ...]:
    sums, nothing = query.new_empty((query.shape[1], query.shape[0]), dtype=torch.float32), query.new_empty(0)
    return torch.empty_like(query), sums, nothing, nothing.clone(), nothing.clone()


def _attention_backward(grad: Tensor, *inputs: Any, **_: Any) -> tuple[Tensor, ...]:
    return tuple(map(torch.empty_like, inputs[:3]))
