"""The chunked loss against torch's own cross-entropy in fp64."""

import pytest
import torch
from torch import Tensor

from model import Objective
from model import loss as loss_module
from model.kernels import use_kernels
from model.kernels.cpu import training as cpu_loss
from model.loss import CrossEntropy, OutputLayer, cross_entropy_sums
from tests.flops import flop_counter
from tests.model.reference import BOS, EOS, PAD, logits_of, pad, smoothed_losses, tiny_model, tiny_section

WIDTH, VOCAB = 6, 17
TARGETS = torch.tensor([[4, 16, 9, EOS, PAD], [EOS, PAD, PAD, PAD, PAD], [7, 8, 3, 5, EOS]])


@pytest.fixture(params=[1, 3, 1000], ids=lambda rows: f"{rows}-rows-a-chunk")
def chunk_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of 10 target tokens and 15 places: one chunk or several, the last one short."""
    rows: int = request.param
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", rows * VOCAB)
    monkeypatch.setattr(cpu_loss, "CHUNK_ELEMENTS", rows * VOCAB)
    monkeypatch.setattr(cpu_loss, "MIN_CHUNK_ROWS", 1)
    monkeypatch.setattr(cpu_loss, "BLOCK_ELEMENTS", 2 * VOCAB)
    return rows


def make_inputs(dtype: torch.dtype = torch.float32, *, bias: bool = True) -> tuple[Tensor, OutputLayer]:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(*TARGETS.shape, WIDTH, generator=generator).to(dtype).requires_grad_()
    layer = OutputLayer(WIDTH, VOCAB, padding_id=PAD, bias=bias)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return hidden, layer.to(dtype)


def expected_sums(hidden: Tensor, layer: OutputLayer, smoothing: float, scale: float) -> tuple[Tensor, ...]:
    """Loss, likelihood and the gradients of loss * scale by hidden, weight and bias, in fp64."""
    h, w, *b = (x.detach().double().requires_grad_() for x in (hidden, *layer.parameters()))
    logits = h @ w.T + b[0] if b else h @ w.T
    loss, nll = smoothed_losses(logits.flatten(0, 1), TARGETS.flatten(), smoothing)
    return (loss, nll, *torch.autograd.grad(loss * scale, (h, w, *b)))


def gradients(layer: OutputLayer) -> list[Tensor | None]:
    return [parameter.grad for parameter in layer.parameters()]


@pytest.mark.usefixtures("chunk_rows")
@pytest.mark.parametrize(("bias", "smoothing", "scale"), [(True, 0.0, 1.0), (False, 0.1, 0.037), (True, 0.7, 0.037)])
def test_sums_and_gradients(bias: bool, smoothing: float, scale: float) -> None:
    hidden, layer = make_inputs(bias=bias)
    loss, nll = layer(hidden, TARGETS, CrossEntropy(smoothing))
    (loss * scale).backward()
    expected = expected_sums(hidden, layer, smoothing, scale)
    for got, wanted in zip((loss, nll, hidden.grad, *gradients(layer)), expected, strict=True):
        assert got is not None
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), wanted, rtol=2e-6, atol=2e-6)
    assert not nll.requires_grad


@pytest.mark.usefixtures("chunk_rows")
@pytest.mark.parametrize(("kernels", "smoothing"), [("plain", 0.0), ("auto", 0.1), ("cuda", 0.1), ("cuda", 0.0)])
def test_scales_of_rows(kernels: str, smoothing: float) -> None:
    """Of the losses and gradients, not of the likelihoods; a scale of 0 drops a row, even one of infinite loss."""
    hidden, layer = make_inputs()
    use_kernels(layer, torch.device("cpu"), kernels)
    scales = torch.tensor([[0.5, 0.0, -2.0, 1.0, 3.0], [0.25, 9.0, 9.0, 9.0, 9.0], [1.5, 0.0, 0.1, 0.0, 2.0]])
    h, w, b = (x.detach().double().requires_grad_() for x in (hidden, *layer.parameters()))
    losses = torch.nn.functional.cross_entropy(
        (h @ w.T + b).flatten(0, 1), TARGETS.flatten(), ignore_index=PAD, label_smoothing=smoothing, reduction="none"
    )
    wanted = (losses * scales.flatten()).sum()
    loss, nll = layer(hidden, TARGETS, CrossEntropy(smoothing), scales)
    (loss * 0.5).backward()
    plain = layer(hidden.detach(), TARGETS, CrossEntropy(smoothing))
    torch.testing.assert_close(nll, plain[1], rtol=0, atol=0)
    gradients_wanted = torch.autograd.grad(wanted * 0.5, (h, w, b))
    pairs = zip((loss, hidden.grad, *gradients(layer)), (wanted, *gradients_wanted), strict=True)
    for got, expected in pairs:
        assert got is not None
        torch.testing.assert_close(got.double(), expected, rtol=2e-6, atol=2e-6)
    if not smoothing:
        assert layer.bias is not None
        with torch.no_grad():
            layer.bias[16] = float("-inf")  # the target of a row of scale 0
            assert layer(hidden, TARGETS, CrossEntropy(0.0), scales)[0].isfinite()


@pytest.mark.usefixtures("chunk_rows")
def test_rows_of_padding_kept_weigh_nothing() -> None:
    """A device keeps them, where selecting rows would make the host wait; even where those rows hold no numbers."""
    hidden, layer = make_inputs()
    expected = expected_sums(hidden, layer, 0.1, 1.0)
    is_padding = TARGETS.flatten() == PAD
    assert is_padding.sum() == 5
    rows = hidden.detach().flatten(0, 1)
    rows = torch.where(is_padding[:, None], torch.tensor([float("nan"), float("inf")]).repeat(3), rows).requires_grad_()
    loss, nll = cross_entropy_sums(
        rows, layer.weight, TARGETS.flatten(), layer.bias, label_smoothing=0.1, padding_id=PAD
    )
    torch.autograd.backward(loss)
    assert rows.grad is not None
    got = (loss, nll, rows.grad.view_as(hidden), *gradients(layer))
    for value, wanted in zip(got, expected, strict=True):
        assert value is not None
        torch.testing.assert_close(value.double(), wanted, rtol=2e-6, atol=2e-6)
    assert not rows.grad[is_padding].any()


@pytest.mark.usefixtures("chunk_rows")
def test_bf16_is_close() -> None:
    hidden, layer = make_inputs(torch.bfloat16)
    loss, nll = layer(hidden, TARGETS, CrossEntropy(0.1))
    loss.backward()
    assert loss.dtype == nll.dtype == torch.float32
    expected = expected_sums(hidden, layer, 0.1, 1.0)
    for got, wanted in zip((loss, nll, hidden.grad, *gradients(layer)), expected, strict=True):
        assert got is not None
        torch.testing.assert_close(got.double(), wanted, rtol=0.02, atol=0.05)
    assert hidden.grad is not None
    assert hidden.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_none_are_formed(mode: type[torch.no_grad], way: str) -> None:
    hidden, layer = make_inputs()
    expected = expected_sums(hidden, layer, 0.1, 1.0)
    with mode(), flop_counter() as counter:
        loss, nll = layer(hidden.detach(), TARGETS, CrossEntropy(0.1))
    num_tokens = TARGETS.numel() if way == "plain" else int((TARGETS != PAD).sum())
    assert counter.get_total_flops() == 2 * num_tokens * WIDTH * VOCAB, "logits alone take this many"
    assert not loss.requires_grad
    torch.testing.assert_close(torch.stack([loss, nll]).double(), torch.stack(expected[:2]), rtol=1e-6, atol=0)


@pytest.mark.usefixtures("chunk_rows")
@pytest.mark.parametrize("frozen", [("hidden",), ("weight", "bias"), ("hidden", "weight")], ids="-".join)
def test_some_frozen(frozen: tuple[str, ...]) -> None:
    hidden, layer = make_inputs()
    expected = dict(zip(("hidden", "weight", "bias"), expected_sums(hidden, layer, 0.1, 1.0)[2:], strict=True))
    leaves = {"hidden": hidden, **dict(layer.named_parameters())}
    for name in frozen:
        leaves[name].requires_grad_(False)
    layer(hidden, TARGETS, CrossEntropy(0.1))[0].backward()
    for name, leaf in leaves.items():
        if name in frozen:
            assert leaf.grad is None
        else:
            assert leaf.grad is not None
            torch.testing.assert_close(leaf.grad.double(), expected[name], rtol=2e-6, atol=2e-6)


def test_extreme_logits_stay_finite() -> None:
    hidden, layer = make_inputs()
    with torch.no_grad():
        hidden *= 1000
    loss, _ = layer(hidden, TARGETS, CrossEntropy(0.1))
    loss.backward()
    torch.testing.assert_close(loss.double(), expected_sums(hidden, layer, 0.1, 1.0)[0], rtol=1e-6, atol=0)
    assert hidden.grad is not None
    assert hidden.grad.isfinite().all()


def test_sums_add_up_over_any_split_of_a_batch() -> None:
    """What makes an update independent of how it is cut into micro-batches."""
    objective = Objective(tiny_model(tiny_section()), CrossEntropy(0.1))
    sources = [[5, 6, EOS], [7, EOS], [8, 9, 10, EOS]]
    targets = [[4, EOS], [5, 6, 7, EOS], [EOS]]
    inputs = [[BOS, *row[:-1]] for row in targets]
    whole = objective(pad(sources), pad(inputs), pad(targets))
    parts = [objective(pad([s]), pad([i]), pad([t])) for s, i, t in zip(sources, inputs, targets, strict=True)]
    assert whole.loss_sum.item() == pytest.approx(sum(p.loss_sum.item() for p in parts), rel=1e-6)
    assert whole.nll_sum.item() == pytest.approx(sum(p.nll_sum.item() for p in parts), rel=1e-6)
    logits = logits_of(objective.model, pad(sources), pad(inputs)).flatten(0, 1)
    _, nll = smoothed_losses(logits, pad(targets).flatten(), 0.1)
    assert whole.nll_sum.item() == pytest.approx(nll.item(), rel=1e-6)


@pytest.mark.parametrize("kernels", ["plain", "auto", "cuda"])
def test_a_forbidden_piece_is_no_nan(kernels: str) -> None:
    """A logit of -inf, of a piece that is nobody's target, without smoothing: as torch's."""
    hidden, layer = make_inputs()
    use_kernels(layer, torch.device("cpu"), kernels)
    assert layer.bias is not None
    with torch.no_grad():
        layer.bias[10] = float("-inf")
    found = layer(hidden, TARGETS, CrossEntropy(0.0))
    logits = torch.nn.functional.linear(hidden, layer.weight, layer.bias).flatten(0, 1)
    expected = torch.nn.functional.cross_entropy(logits, TARGETS.flatten(), ignore_index=PAD, reduction="sum")
    for sums in found:
        torch.testing.assert_close(sums, expected)
