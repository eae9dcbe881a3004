"""The one-pass loss: its Triton way under the interpreter, and its plain twin through the layer."""

import weakref
from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks.device.budget_model import logits_moved
from model import loss as plain_loss
from model.components.loss import CHUNK_BYTES, most_rows
from model.kernels import use_kernels
from model.kernels.cuda import loss as cuda_loss
from model.kernels.cuda.loss import CudaOutputLayer
from model.loss import CrossEntropy, OutputLayer
from tests.forked import Forked
from tests.model.kernels.cuda import interpreted

CASES: list[interpreted.Case] = [
    (37, 9, "float32", 0.1, 1.0),
    (37, 9, "float32", 0.0, 1.0),
    (37, 9, "bfloat16", 0.1, 1.0),
    (37, 9, "float16", 0.1, 128.0),
    (32_000, 5, "float32", 0.1, 1.0),
    (32_000, 5, "bfloat16", 0.0, 1.0),
    (256_206, 8, "float32", 0.1, 1.0),
    (256_206, 8, "bfloat16", 0.1, 1.0),
]
PAD = 0
CPU = torch.device("cpu")


@interpreted.needed
def test_triton_under_its_interpreter(interpreter: Forked, tmp_path: Path) -> None:
    """Against torch in fp64: in fp32 its own gradient is 5e-5 off that at 256,206 pieces with smoothing."""
    [found] = interpreter.ranks(1, interpreted.losses, CASES, cwd=tmp_path, meet=False)
    for case, row in zip(CASES, found, strict=True):
        assert row["loss"] < 1e-6, (case, row)
        assert row["nll"] < 1e-6, (case, row)
        assert row["units"] <= 1, (case, row)
        assert case[2] != "float32" or row["gradient"] < 1e-6, (case, row)
        assert row["scaled"] < 1e-6, (case, row)
        assert row["scaled units"] <= 1, (case, row)
        assert case[2] != "float32" or row["scaled gradient"] < 3e-6, (case, row)
        assert row["scaled nll"] == row["beyond"] == row["padding"] == row["without"] == 0, (case, row)


@interpreted.needed
def test_blocks_of_forbidden_pieces(interpreter: Forked, tmp_path: Path) -> None:
    """Logits of -inf, block after block: whatever torch makes of them, but no NaN of ours."""
    [found] = interpreter.ranks(1, interpreted.forbidden, cwd=tmp_path, meet=False)
    for name, (got, wanted) in found.items():
        assert torch.isfinite(wanted).all(), name
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6, msg=name)


def through_the_layer(
    kernels: str, *, vocab: int, dtype: torch.dtype, bias: bool, scale: float, smoothing: float = 0.1
) -> list[Tensor]:
    """Loss, likelihood and gradients."""
    generator = torch.Generator().manual_seed(5)
    layer = OutputLayer(6, vocab, padding_id=PAD, bias=bias)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    hidden = torch.randn(3, 7, 6, generator=generator)
    targets = torch.randint(0, vocab, (3, 7), generator=generator)
    targets[1, 2:] = PAD
    hidden[1, 3] = float("nan")
    hidden, layer = hidden.to(dtype).requires_grad_(), layer.to(dtype)
    use_kernels(layer, CPU, kernels)
    loss, nll = layer(hidden, targets, CrossEntropy(smoothing, scale))
    (loss * scale).backward()
    assert hidden.grad is not None
    return [loss.detach(), nll, hidden.grad, *(p.grad for p in layer.parameters() if p.grad is not None)]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("vocab", [37, 64])
@pytest.mark.parametrize("rows", [4, 1000])
def test_the_layer_is_the_plain_one(bias: bool, vocab: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In padded vocabularies and whole ones, in one chunk and in several."""
    monkeypatch.setattr(cuda_loss, "CHUNK_BYTES", rows * 64 * 4)
    monkeypatch.setattr(plain_loss, "CHUNK_ELEMENTS", rows * vocab)
    for dtype, tolerance in ((torch.float32, 2e-6), (torch.bfloat16, 2e-2)):
        for scale in (1.0, 64.0):
            ways = [
                through_the_layer(kernels, vocab=vocab, dtype=dtype, bias=bias, scale=scale)
                for kernels in ("plain", "cuda")
            ]
            for plain, ours in zip(*ways, strict=True):
                assert ours.dtype == plain.dtype
                assert ours.shape == plain.shape
                assert float((ours - plain).abs().max()) <= tolerance * float(plain.abs().max())


def test_chunks_are_aligned_and_no_larger_than_planned() -> None:
    for tokens in range(1, 40_000, 997):
        for columns, element in ((37_056, 2), (256_256, 2), (8_000, 4)):
            chunk, most = cuda_loss.chunk_rows(tokens, columns, element), most_rows(columns, element)
            assert chunk % 16 == 0
            assert chunk <= most
            assert most * columns * element <= CHUNK_BYTES
            assert -(-tokens // chunk) == -(-tokens // most), "no more chunks than needed"


def test_other_losses_and_no_gradients() -> None:
    layer = OutputLayer(4, 9, padding_id=PAD)
    torch.nn.init.normal_(layer.weight)
    hidden, targets = torch.randn(2, 3, 4), torch.tensor([[3, 4, 0], [8, 1, 2]])
    expected = layer(hidden, targets, CrossEntropy(0.1))
    use_kernels(layer, CPU, "cuda")
    assert type(layer) is CudaOutputLayer
    with torch.no_grad():
        for one, other in zip(layer(hidden, targets, CrossEntropy(0.1)), expected, strict=True):
            torch.testing.assert_close(one, other.detach())
    told = layer(hidden, targets, lambda *given, padding_id: (given[0].sum(), given[0].sum()))
    torch.testing.assert_close(told[0], hidden.sum())
    empty = layer(hidden[:0].requires_grad_(), targets[:0], CrossEntropy(0.1))
    assert empty[0].item() == 0


def test_passes_over_the_logits() -> None:
    """Moved by what is no matmul; it was nine passes of operators, some of them over fp32."""
    moved = {kernels: logits_moved(rows=512, width=64, vocab=37_000, kernels=kernels) for kernels in ("plain", "cuda")}
    assert moved["cuda"] <= 3.01, moved
    assert moved["plain"] >= 9, moved


@pytest.mark.parametrize("kernels", ["plain", "cuda"])
@pytest.mark.parametrize("with_grad", [True, False])
def test_one_chunk_of_logits_is_in_memory(kernels: str, with_grad: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `activation_bytes` counts: no chunk is left when the next one is computed."""
    monkeypatch.setattr(cuda_loss, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(plain_loss, "CHUNK_ELEMENTS", 250)
    alive: list[int] = []
    logits: list[weakref.ref[Tensor]] = []
    linear = torch.nn.functional.linear

    def counted(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        before, out = sum(ref() is not None for ref in logits), linear(x, weight, bias)
        if len(weight) >= 37:  # not the product with its transpose
            alive.append(before)
            logits.append(weakref.ref(out))
        return out

    layer = OutputLayer(6, 37, padding_id=PAD, bias=True)
    torch.nn.init.normal_(layer.weight)
    use_kernels(layer, CPU, kernels)
    monkeypatch.setattr(torch.nn.functional, "linear", counted)
    with torch.set_grad_enabled(with_grad):
        layer(torch.randn(100, 6), torch.randint(1, 37, (100,)), CrossEntropy(0.1))
    assert len(logits) > 3
    assert max(alive) == 0
