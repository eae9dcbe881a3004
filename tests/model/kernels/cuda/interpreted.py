"""Triton's kernels under its interpreter, in a process of its own: the variable must stand before triton is read."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

Case = tuple[int, int, str, float, float]
"""Pieces, rows, precision, smoothing, gradient scale."""
PAD = 0


def why_not() -> str | None:
    """Why the interpreter cannot run the kernels here; None if it can."""
    if (triton := find_spec("triton")) is None or triton.origin is None:
        return "triton is not installed"
    source = (Path(triton.origin).parent / "runtime" / "interpreter.py").read_text()
    try:
        int(np.ones(1))
    except TypeError:
        if "int(self.handle.data)" in source:
            return "this Triton's interpreter has no loops with this NumPy"
    return None


needed = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
"""The mark of a test that needs the interpreter."""


def losses(cases: list[Case]) -> list[dict[str, float]]:
    """How far the kernel is from `F.cross_entropy` in fp64 of the same logits, and what it does beyond the pieces."""
    from model.kernels.cuda.triton_kernels import cross_entropy

    found = []
    for vocab, rows, precision, smoothing, scale in cases:
        cross_entropy.MAX_COLUMNS = 8192 if vocab < 100_000 else 1 << 17  # the interpreter takes its time by blocks
        dtype: torch.dtype = getattr(torch, precision)
        logits, targets = logits_and_targets(vocab, rows, dtype)
        expected = logits[:, :vocab].double().requires_grad_()
        loss = F.cross_entropy(expected, targets, reduction="sum", label_smoothing=smoothing, ignore_index=PAD)
        torch.autograd.backward(loss * scale)
        nll = F.cross_entropy(expected.detach(), targets, reduction="sum", ignore_index=PAD)
        sums, without = torch.full((2, rows), 7.0), torch.full((2, rows), 7.0)
        cross_entropy.cross_entropy(logits, targets, without, vocab, PAD, smoothing, False)
        again, of_rows = logits.clone(), sums.clone()
        scales = torch.rand(rows, generator=torch.Generator().manual_seed(rows)).mul_(4.0)
        scales[2] = 0.0
        cross_entropy.cross_entropy(logits, targets, sums, vocab, PAD, smoothing, True, torch.tensor(scale))
        cross_entropy.cross_entropy(again, targets, of_rows, vocab, PAD, smoothing, True, torch.tensor(scale), scales)
        assert expected.grad is not None
        wanted, got = expected.grad.float().masked_fill_((targets == PAD)[:, None], 0.0), logits[:, :vocab]
        found.append(
            {
                "loss": float((sums[0].double().sum() - loss.detach()).abs() / loss.detach()),
                "nll": float((sums[1].double().sum() - nll).abs() / nll),
                "gradient": float((got.float() - wanted).abs().max()),
                "units": units(got, wanted.to(dtype)) if dtype != torch.float32 else 0.0,
                "beyond": float(logits[:, vocab:].abs().sum()),
                "padding": float(got[targets == PAD].abs().sum() + sums[:, targets == PAD].abs().sum()),
                "without": float((without - sums).abs().max()),
                "scaled": float((of_rows[0].double() - sums[0].double() * scales).abs().max() / loss.detach()),
                "scaled nll": float((of_rows[1] - sums[1]).abs().max()),
                "scaled gradient": float((again[:, :vocab] - wanted * scales[:, None]).abs().max()),
                "scaled units": units(again[:, :vocab], (wanted * scales[:, None]).to(dtype))
                if dtype != torch.float32
                else 0.0,
            }
        )
    return found


def forbidden() -> dict[str, tuple[Tensor, Tensor]]:
    """The kernel's result and its plain twin's, where the first or a later block holds nothing but -inf."""
    from model.kernels.cuda.loss import _plain_cross_entropy_
    from model.kernels.cuda.triton_kernels import cross_entropy

    cross_entropy.MAX_COLUMNS = 16
    found = {}
    for blocks in ([0], [1], [0, 1], [1, 2], [3]):
        logits, targets = torch.randn(2, 64), torch.tensor([60, 35])
        for block in blocks:
            logits[0, 16 * block : 16 * block + 16] = float("-inf")
        targets[0] = next(16 * block for block in range(4) if block not in blocks)
        pairs = [(logits.clone(), torch.empty(2, 2)) for _ in range(2)]
        cross_entropy.cross_entropy(pairs[0][0], targets, pairs[0][1], 64, PAD, 0.0, True)
        _plain_cross_entropy_(pairs[1][0], targets, pairs[1][1], 64, PAD, 0.0, True)
        for name, (got, wanted) in zip(("gradient", "found"), zip(*pairs, strict=True), strict=True):
            found[f"{name}, blocks {blocks}"] = got, wanted
    return found


def logits_and_targets(vocab: int, rows: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Of a padded vocabulary: no numbers stand beyond the pieces, nor in a row whose target is padding."""
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randn(rows, -(-vocab // 64) * 64, generator=generator) * 3
    targets = torch.randint(1, vocab, (rows,), generator=generator)
    targets[0], targets[3] = vocab - 1, PAD
    logits[:, vocab:] = logits[3] = float("nan")
    logits[1, 5] = 60.0  # all of a row's probability in one place
    return logits.to(dtype), targets


def units(got: Tensor, wanted: Tensor) -> float:
    """The most that 16-bit numbers are apart, in units in the last place."""
    ordered = [x.view(torch.int16).int() for x in (got, wanted)]
    ordered = [torch.where(x < 0, -(x & 0x7FFF), x) for x in ordered]
    return float((ordered[0] - ordered[1]).abs().max())


def drops() -> tuple[list[Tensor], list[Tensor]]:
    """What dropout leaves, by Triton and by its plain twin."""
    from model.kernels.cuda.dropout import _plain
    from model.kernels.cuda.triton_kernels.drop import drop

    cases = []
    for rows, features, dtype in ((5, 12, torch.float32), (3, 1030, torch.bfloat16), (2, 1, torch.float32)):
        tokens = torch.randint(-(2**31), 2**31, (rows, 4)).int()
        cases += [(torch.randn(rows, features).to(dtype), tokens, 7, p) for p in (0.1, 0.5)]
    return [drop(*case) for case in cases], [_plain(*case) for case in cases]


Sizes = tuple[int, int, str, float, bool, bool, bool]
"""Rows, width, precision, dropout, whether there are a norm's bias, a linear bias and a gradient of the sum."""


def residuals(cases: list[Sizes]) -> list[dict[str, float]]:
    """The most by which Triton's results are off the plain ones, in parts of the largest of each."""
    from model.kernels.cuda import residual_norm as plain
    from model.kernels.cuda.triton_kernels import residual_norm_backward
    from model.kernels.cuda.triton_kernels.residual_norm import residual_norm

    residual_norm_backward.LEAST_ROWS = 1  # many programs, of few rows
    found = []
    for rows, width, precision, p, has_bias, has_linear_bias, has_grad_summed in cases:
        generator = torch.Generator().manual_seed(width)
        shapes = [(rows, width)] * 4 + [(width,)] * 3
        x, y, grad_normed, grad_summed, linear_bias, weight, bias = (
            torch.randn(shape, generator=generator).to(getattr(torch, precision)) for shape in shapes
        )
        tokens = torch.randint(-(2**31), 2**31 - 1, (rows, 4), generator=generator, dtype=torch.int32) if p else None
        given = (x, y, linear_bias if has_linear_bias else None, weight, bias if has_bias else None, tokens, 7, p, 1e-5)
        forward = [residual_norm(*given), plain.residual_norm(*given)]
        summed, _, mean, rstd = forward[1]
        kept = (
            grad_normed,
            grad_summed if has_grad_summed else None,
            summed,
            mean,
            rstd,
            weight,
            tokens,
            7,
            p,
            has_bias,
        )
        backward = [residual_norm_backward.residual_norm_backward(*kept), plain.residual_norm_backward(*kept)]
        names = ("summed", "normed", "mean", "rstd", "grad_x", "grad_y", "sums")
        pairs = zip((*forward[0], *backward[0]), (*forward[1], *backward[1]), strict=True)
        found.append({name: apart(*pair) for name, pair in zip(names, pairs, strict=True)})
    return found


def apart(got: Tensor, wanted: Tensor) -> float:
    """The largest difference in parts of the largest number; shapes and precisions must be the same."""
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    if not wanted.numel():
        return 0.0
    return float((got.double() - wanted.double()).abs().max() / wanted.double().abs().max().clamp_min(1e-9))


def relus(cases: list[tuple[int, int, str]]) -> list[float]:
    """See `residuals`: of rows, width and precision."""
    from model.kernels.cuda import linear
    from model.kernels.cuda.triton_kernels.relu_backward import relu_backward

    found = []
    for rows, width, precision in cases:
        generator = torch.Generator().manual_seed(width)
        grad, out = (torch.randn(rows, width, generator=generator).to(getattr(torch, precision)) for _ in range(2))
        pairs = zip(relu_backward(grad, out.relu()), linear.relu_backward(grad, out.relu()), strict=True)
        found.append(max(apart(*pair) for pair in pairs))
    return found
