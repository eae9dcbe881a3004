"""What a pass asks of the host: all kernels are replaced by some that do nothing, on tiny tensors of the CPU."""

import cProfile
import pstats
import time
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from benchmarks.device.budget_model import make_objective
from benchmarks.device.work import Figures
from configs import preset_model
from configs.components import make
from data_pipeline.stream.batch import MicroBatch
from model.kernels import use_kernels
from model.kernels.cuda import attention
from trainer.engines.layouts import laid_out

WIDTH, VOCAB, ROWS, LENGTH = 16, 64, 3, 5


def measure(*, work: str, device: str, preset: str, passes: int) -> Figures:
    """Python calls (exact) and processor time (the least of several passes) of forward and backward.

    A GPU's driver and Triton's own start of a kernel come on top: the host's time of base and big has them.

    Args:
        work, device: not used: this is about the host.
        preset: of the model; only its depth and parts matter, its widths are replaced by tiny ones.
        passes: timed ones.
    """
    torch.set_num_threads(1)
    _replace_kernels()
    found = {}
    for kernels in ("cuda", "plain"):
        once = _pass(preset, kernels)
        once()
        profile = cProfile.Profile()
        profile.enable()
        once()
        profile.disable()
        times = []
        for _ in range(passes):
            begin = time.process_time()
            once()
            times.append(time.process_time() - begin)
        calls = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
        found[kernels] = {"calls": calls, "seconds": min(times)}
    return {"host": found, "preset": preset}


def _pass(preset: str, kernels: str) -> Any:
    """A function that makes a pass of a tiny batch."""
    ids = np.full((ROWS, LENGTH), 5)
    lane = MicroBatch(lane=0, dataset=0, pair_ids=np.arange(ROWS), source=ids, target_input=ids, target_output=ids)
    small = {
        "d_model": WIDTH,
        "attention": make("attention", "multi_head", num_heads=2),
        "feed_forward": make("feed_forward", "relu", d_ff=WIDTH),
    }
    objective = make_objective(preset_model(preset, small), VOCAB)
    use_kernels(objective, torch.device("cpu"), kernels)
    batch = laid_out([lane], [1], torch.device("cpu"), is_packed=kernels == "cuda")
    more = (1.0, batch.layout) if kernels == "cuda" else ()

    def once() -> None:
        objective(batch.source, batch.target_input, batch.target_output, *more)[0].backward()

    return once


def _replace_kernels() -> None:
    """Replace the operators' implementations for the CPU, in this process, by some that only make their results."""
    library: Any = torch.library.Library("zeromt", "IMPL")  # type: ignore[no-untyped-call]
    _KEPT.append(library)
    for name, function in {
        "residual_norm": _norm,
        "residual_norm_backward": _norm_backward,
        "relu_backward": lambda grad, out: (torch.empty_like(out), out.new_empty(out.shape[1])),
        "cross_entropy_": lambda *_: None,
        "drop": lambda x, *_: torch.empty_like(x),
    }.items():
        library.impl(name, function, "CPU", allow_override=True)
    import torch.nn.attention.varlen as ops

    ops._varlen_attn.register_kernel("cpu")(_attention)
    ops._varlen_attn_backward.register_kernel("cpu")(lambda grad, q, k, v, *_: tuple(map(torch.empty_like, (q, k, v))))
    replaced = mock.patch.object(attention, "packed_attention", _packed_attention)
    replaced.start()


_KEPT: list[Any] = []
"""A library's implementations end with it."""


def _packed_attention(
    query: Tensor, key: Tensor, value: Tensor, queries: Any, keys: Any, *, is_causal: bool, scale: float
) -> Any:
    """The GPU's way, whatever the device."""
    return attention._Varlen.apply(query, key, value, queries, keys, is_causal, scale)  # type: ignore[no-untyped-call]


def _norm(x: Tensor, *_: Any) -> tuple[Tensor, ...]:
    numbers = x.new_empty(x.shape[0], dtype=torch.float32)
    return torch.empty_like(x), torch.empty_like(x), numbers, torch.empty_like(numbers)


def _norm_backward(
    grad: Tensor, more: Any, summed: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor, tokens: Tensor | None, *_: Any
) -> tuple[Tensor, ...]:
    second = summed.new_empty(0) if tokens is None else torch.empty_like(summed)
    return torch.empty_like(summed), second, weight.new_empty((3, weight.shape[0]))


def _attention(query: Tensor, *_: Any) -> tuple[Tensor, ...]:
    sums = query.new_empty((query.shape[1], query.shape[0]), dtype=torch.float32)
    return torch.empty_like(query), sums, torch.zeros(2, dtype=torch.uint64)
