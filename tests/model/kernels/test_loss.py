"""The chunked loss of every device against torch's own cross-entropy in fp64."""

import weakref

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from model import loss as plain_loss
from model.components.loss import CHUNK_BYTES, most_rows
from model.kernels import use_kernels
from model.kernels.cpu import training as cpu_loss
from model.kernels.cuda import loss as cuda_loss
from model.loss import CrossEntropy, OutputLayer
from tests.flops import flop_counter
from tests.model.reference import EOS, PAD

WIDTH, VOCAB, PADDED = 6, 17, 64
TARGETS = torch.tensor([[4, 16, 9, EOS, PAD], [EOS, PAD, PAD, PAD, PAD], [7, 8, 3, 5, EOS]])
CPU = torch.device("cpu")
each_kernel = pytest.mark.parametrize("kernels", ["plain", "auto", "cuda"])


@pytest.fixture(params=[1, 3, 1000], ids=lambda rows: f"{rows}-rows-a-chunk")
def chunk_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of 10 target tokens and 15 places: one chunk or several, the last one short."""
    rows: int = request.param
    monkeypatch.setattr(plain_loss, "CHUNK_ELEMENTS", rows * VOCAB)
    monkeypatch.setattr(cuda_loss, "CHUNK_BYTES", rows * PADDED * 4)
    monkeypatch.setattr(cpu_loss, "CHUNK_ELEMENTS", rows * VOCAB)
    monkeypatch.setattr(cpu_loss, "MIN_CHUNK_ROWS", 1)
    monkeypatch.setattr(cpu_loss, "BLOCK_ELEMENTS", 2 * VOCAB)
    return rows


def made(kernels: str, dtype: torch.dtype = torch.float32, *, bias: bool = True) -> tuple[Tensor, OutputLayer]:
    """Hidden states, which hold no numbers where targets are padding, and a layer."""
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(*TARGETS.shape, WIDTH, generator=generator)
    hidden[TARGETS == PAD] = float("nan")
    layer = OutputLayer(WIDTH, VOCAB, padding_id=PAD, bias=bias)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    use_kernels(layer, CPU, kernels)
    return hidden.to(dtype).requires_grad_(), layer.to(dtype)


def expected(
    hidden: Tensor, layer: OutputLayer, smoothing: float, scale: float = 1.0, scales: Tensor | None = None
) -> list[Tensor]:
    """Loss, likelihood and the gradients of loss * scale by hidden, weight and bias, in fp64."""
    h, w, *b = (x.detach().double().nan_to_num().requires_grad_() for x in (hidden, *layer.parameters()))
    logits, targets = F.linear(h, w, *b).flatten(0, 1), TARGETS.flatten()
    losses = F.cross_entropy(logits, targets, ignore_index=PAD, label_smoothing=smoothing, reduction="none")
    loss = losses.sum() if scales is None else (losses * scales.flatten()).sum()
    nll = F.cross_entropy(logits, targets, ignore_index=PAD, reduction="sum")
    return [loss, nll, *torch.autograd.grad(loss * scale, (h, w, *b))]


def check(outputs: tuple[Tensor, ...], hidden: Tensor, layer: OutputLayer, wanted: list[Tensor], off: float) -> None:
    got = (*outputs, hidden.grad, *(parameter.grad for parameter in layer.parameters()))
    for value, one in zip(got, wanted, strict=True):
        assert value is not None
        torch.testing.assert_close(value.double(), one, rtol=off, atol=off)


@pytest.mark.usefixtures("chunk_rows")
@pytest.mark.parametrize(
    ("dtype", "bias", "smoothing", "scale", "off"),
    [
        (torch.float32, True, 0.0, 1.0, 3e-6),
        (torch.float32, False, 0.1, 0.037, 3e-6),
        (torch.float32, True, 0.7, 64.0, 64 * 3e-6),
        (torch.bfloat16, True, 0.1, 1.0, 0.05),
    ],
)
@each_kernel
def test_sums_and_gradients(
    kernels: str, dtype: torch.dtype, bias: bool, smoothing: float, scale: float, off: float
) -> None:
    hidden, layer = made(kernels, dtype, bias=bias)
    outputs = layer(hidden, TARGETS, CrossEntropy(smoothing), None, lambda: torch.tensor(scale))
    (outputs[0] * scale).backward()
    check(outputs, hidden, layer, expected(hidden, layer, smoothing, scale), off)
    assert not outputs[1].requires_grad
    assert outputs[0].dtype == outputs[1].dtype == torch.float32
    assert hidden.grad is not None
    assert hidden.grad.dtype == dtype


@pytest.mark.usefixtures("chunk_rows")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@each_kernel
def test_scales_of_rows(kernels: str, smoothing: float) -> None:
    """Of the losses and gradients, not of the likelihoods; a scale of 0 drops a row, even one of infinite loss."""
    hidden, layer = made(kernels)
    scales = torch.tensor([[0.5, 0.0, -2.0, 1.0, 3.0], [0.25, 9.0, 9.0, 9.0, 9.0], [1.5, 0.0, 0.1, 0.0, 2.0]])
    outputs = layer(hidden, TARGETS, CrossEntropy(smoothing), scales)
    (outputs[0] * 0.5).backward()
    check(outputs, hidden, layer, expected(hidden, layer, smoothing, 0.5, scales), 3e-6)
    if not smoothing:
        assert layer.bias is not None
        with torch.no_grad():
            layer.bias[16] = float("-inf")  # the target of a row of scale 0
            assert layer(hidden, TARGETS, CrossEntropy(0.0), scales)[0].isfinite()


@each_kernel
def test_a_forbidden_piece_is_no_nan(kernels: str) -> None:
    """A logit of -inf, of a piece that is nobody's target, without smoothing; and one that is very large."""
    hidden, layer = made(kernels)
    assert layer.bias is not None
    with torch.no_grad():
        layer.bias[10], layer.bias[11] = float("-inf"), 1e4
        outputs = layer(hidden, TARGETS, CrossEntropy(0.0))
        logits = F.linear(hidden.nan_to_num(), layer.weight, layer.bias).flatten(0, 1)
    for sums in outputs:
        torch.testing.assert_close(sums, F.cross_entropy(logits, TARGETS.flatten(), ignore_index=PAD, reduction="sum"))


@pytest.mark.parametrize("frozen", [("hidden",), ("weight", "bias"), ("hidden", "weight")], ids="-".join)
@each_kernel
def test_some_frozen(kernels: str, frozen: tuple[str, ...]) -> None:
    hidden, layer = made(kernels)
    wanted = dict(zip(("hidden", "weight", "bias"), expected(hidden, layer, 0.1)[2:], strict=True))
    leaves = {"hidden": hidden, **dict(layer.named_parameters())}
    for name in frozen:
        leaves[name].requires_grad_(False)
    layer(hidden, TARGETS, CrossEntropy(0.1))[0].backward()
    assert {name for name, leaf in leaves.items() if leaf.grad is None} == set(frozen)
    for name, leaf in leaves.items():
        if leaf.grad is not None:
            torch.testing.assert_close(leaf.grad.double(), wanted[name], rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@each_kernel
def test_without_gradients_none_are_formed(kernels: str, mode: type[torch.no_grad]) -> None:
    hidden, layer = made(kernels)
    wanted = expected(hidden, layer, 0.1)
    with mode(), flop_counter() as counter:
        loss, nll = layer(hidden.detach(), TARGETS, CrossEntropy(0.1))
    num_tokens = int((TARGETS != PAD).sum()) if kernels == "auto" else TARGETS.numel()
    columns = PADDED if kernels == "cuda" else VOCAB
    assert counter.get_total_flops() == 2 * num_tokens * WIDTH * columns, "logits alone take this many"
    assert not loss.requires_grad
    torch.testing.assert_close(torch.stack([loss, nll]).double(), torch.stack(wanted[:2]), rtol=1e-6, atol=0)


@each_kernel
def test_other_losses_see_every_row_and_there_may_be_none(kernels: str) -> None:
    hidden, layer = made(kernels)
    told = layer(hidden.detach(), TARGETS, lambda *given, padding_id: (given[0].nansum().item(), len(given[3])))
    assert told == (pytest.approx(hidden.nansum().item(), rel=1e-5), TARGETS.numel())
    empty = layer(hidden[:0], TARGETS[:0], CrossEntropy(0.1))
    empty[0].backward()
    assert empty[0].item() == 0


@pytest.mark.parametrize("kernels", ["plain", "cuda"])
@pytest.mark.parametrize("with_grad", [True, False])
def test_one_chunk_of_logits_is_in_memory(kernels: str, with_grad: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `activation_bytes` counts: no chunk is left when the next one is computed."""
    monkeypatch.setattr(cuda_loss, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(plain_loss, "CHUNK_ELEMENTS", 250)
    logits: list[weakref.ref[Tensor]] = []
    linear = F.linear

    def counted(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        out = linear(x, weight, bias)
        if len(weight) >= VOCAB:  # not the product with its transpose
            assert all(ref() is None for ref in logits)
            logits.append(weakref.ref(out))
        return out

    _, layer = made(kernels)
    monkeypatch.setattr(F, "linear", counted)
    with torch.set_grad_enabled(with_grad):
        layer(torch.randn(100, WIDTH), torch.randint(1, VOCAB, (100,)), CrossEntropy(0.1))
    assert len(logits) > 3


def test_chunks_on_a_gpu_are_aligned_and_no_larger_than_planned() -> None:
    for tokens in range(1, 40_000, 997):
        for columns, element in ((37_056, 2), (256_256, 2), (8_000, 4)):
            chunk, most = cuda_loss.chunk_rows(tokens, columns, element), most_rows(columns, element)
            assert chunk % 16 == 0
            assert chunk <= most
            assert most * columns * element <= CHUNK_BYTES
            assert -(-tokens // chunk) == -(-tokens // most), "no more chunks than needed"
