"""CpuLinear layers against the same in fp64."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from model.kernels.cpu import linear as linear_module
from model.kernels.cpu.linear import CpuLinear, has_onednn, joined_linear, multiply, rounded_rows
from tests.flops import flop_counter


@pytest.fixture(autouse=True)
def _products_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to oneDNN, whatever the processor."""
    monkeypatch.setattr(linear_module, "_fp32_prefers_onednn", has_onednn())
    monkeypatch.setattr(linear_module, "MIN_ONEDNN_MACS", 1)


def expected(x: Tensor, layer: CpuLinear, grad: Tensor) -> list[Tensor]:
    """Output and gradients in fp64."""
    leaves = [t.detach().double().requires_grad_() for t in (x, *layer.parameters())]
    out = F.linear(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad.double())]


@pytest.mark.parametrize(("inner", "outer"), [(6, 17), (17, 6), (8, 8), (1, 1)])
@pytest.mark.parametrize("shape", [(1,), (5,), (4, 7), (2, 3, 5), (33,), (3, 13)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("is_checkpointed", [True, False])
def test_products_and_gradients(
    inner: int, outer: int, shape: tuple[int, ...], bias: bool, is_checkpointed: bool
) -> None:
    torch.manual_seed(1)
    layer = CpuLinear(inner, outer, bias=bias)
    x = torch.randn(*shape, inner).requires_grad_()
    grad = torch.randn(*shape, outer)
    out = checkpoint(layer, x, use_reentrant=False) if is_checkpointed else layer(x)
    assert isinstance(out, Tensor)
    out.backward(grad)  # type: ignore[no-untyped-call]
    found = [out.detach(), x.grad, *(p.grad for p in layer.parameters())]
    for got, wanted in zip(found, expected(x, layer, grad), strict=True):
        assert got is not None
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), wanted, rtol=2e-6, atol=2e-6)


def test_strided_operands() -> None:
    torch.manual_seed(1)
    layer = CpuLinear(6, 4)
    x = torch.randn(5, 6, 3).transpose(1, 2).requires_grad_()
    grad = torch.randn(4, 3, 5).permute(2, 1, 0)
    layer(x).backward(grad)
    found = [x.grad, layer.weight.grad, layer.bias.grad]
    for got, wanted in zip(found, expected(x, layer, grad)[1:], strict=True):
        assert got is not None
        torch.testing.assert_close(got.double(), wanted, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(multiply(x[:, 0], layer.weight.T.contiguous().T), x[:, 0] @ layer.weight.T)


@pytest.mark.parametrize("shape", [(5,), (33,), (3, 13)], ids=str)
def test_bf16_is_close(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    layer, x = CpuLinear(6, 4).bfloat16(), torch.randn(*shape, 6).bfloat16().requires_grad_()
    grad = torch.randn(*shape, 4).bfloat16()
    layer(x).backward(grad)
    found = [x.grad, layer.weight.grad, layer.bias.grad]
    for got, wanted in zip(found, expected(x, layer, grad)[1:], strict=True):
        assert got is not None
        assert got.dtype == torch.bfloat16
        torch.testing.assert_close(got.double(), wanted, rtol=1e-2, atol=2e-2)


@pytest.mark.parametrize("row_counts", [16, 32])
def test_rounded_rows(row_counts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_module, "SIZES_PER_DOUBLING", row_counts)
    for num_rows in range(5000):
        above, below = rounded_rows(num_rows), rounded_rows(num_rows, up=False)
        assert below <= num_rows <= above
        assert max(above - num_rows, num_rows - below) * row_counts <= num_rows
        assert rounded_rows(above) == rounded_rows(above, up=False) == above
    assert len({rounded_rows(n) for n in range(1024, 2048)}) <= row_counts + 1


@pytest.mark.parametrize("row_counts", [16, 32])
def test_rounded_rows_with_a_least_step(row_counts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_module, "SIZES_PER_DOUBLING", row_counts)
    assert {rounded_rows(n, multiple=32) for n in range(1, 513)} == set(range(32, 513, 32))
    assert all(rounded_rows(n, multiple=32) == rounded_rows(n) for n in range(32 * row_counts, 5000))


@pytest.mark.skipif(not has_onednn(), reason="torch was built without oneDNN")
def test_few_numbers_of_rows_are_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_module, "SIZES_PER_DOUBLING", 16)
    layer = CpuLinear(6, 4)
    flops = [sum(operators(torch.randn(n, 6, requires_grad=True), layer).values()) for n in (1921, 1950, 1984, 1985)]
    assert flops[0] == flops[1] == flops[2] == 3 * 2 * 1984 * 6 * 4
    assert flops[3] == 3 * 2 * 2048 * 6 * 4


@pytest.mark.parametrize("frozen", [("x",), ("weight",), ("bias",), ("weight", "bias")], ids="-".join)
def test_some_frozen(frozen: tuple[str, ...]) -> None:
    layer = CpuLinear(6, 4)
    x = torch.randn(5, 6, requires_grad=True)
    leaves = {"x": x, **dict(layer.named_parameters())}
    for name in frozen:
        leaves[name].requires_grad_(False)
    layer(x).sum().backward()
    assert {name for name, leaf in leaves.items() if leaf.grad is None} == set(frozen)


def test_no_rows_and_other_precisions() -> None:
    layer = CpuLinear(6, 4)
    layer(torch.empty(0, 6)).sum().backward()
    assert layer.weight.grad is not None
    assert not layer.weight.grad.any()
    x = torch.randn(5, 6, dtype=torch.float64)
    torch.testing.assert_close(layer.double()(x), F.linear(x, layer.weight, layer.bias), rtol=0, atol=0)
    low = layer.bfloat16()
    torch.testing.assert_close(low(x.bfloat16()), F.linear(x.bfloat16(), low.weight, low.bias), rtol=0, atol=0)
    with torch.no_grad():
        assert not low(x.bfloat16()).requires_grad


def operators(x: Tensor, layer: CpuLinear) -> dict[str, int]:
    """FLOPs of forward and backward by operator."""
    with flop_counter() as counter:
        layer(x).sum().backward()
    return {str(op): n for op, n in counter.get_flop_counts()["Global"].items()}


@pytest.mark.skipif(not has_onednn(), reason="torch was built without oneDNN")
def test_large_products_in_fp32_go_to_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_module, "MIN_ONEDNN_MACS", 5 * 6 * 4)
    layer = CpuLinear(6, 4)
    assert operators(torch.randn(5, 6, requires_grad=True), layer) == {"mkldnn._linear_pointwise": 3 * 2 * 5 * 6 * 4}
    assert "mkldnn._linear_pointwise" not in operators(torch.randn(4, 6, requires_grad=True), layer)


@pytest.mark.parametrize("widths", [(8, 8), (8, 4, 17)], ids=str)
@pytest.mark.parametrize("shape", [(5,), (2, 3, 5), (33,), (3, 13)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("by_onednn", [True, False])
def test_several_layers_of_one_input(
    widths: tuple[int, ...], shape: tuple[int, ...], bias: bool, by_onednn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear_module, "_fp32_prefers_onednn", by_onednn and has_onednn())
    torch.manual_seed(1)
    layers = [CpuLinear(6, width, bias=bias) for width in widths]
    x = torch.randn(*shape, 6).requires_grad_()
    grads = [torch.randn(width, *shape).movedim(0, -1) for width in widths]  # strided, as attention's are
    outs = joined_linear(x, layers)
    torch.autograd.backward(outs, grads)
    assert {type(out.grad_fn).__name__ for out in outs} == {"_JoinedLinearBackward"}
    by_x = torch.zeros_like(x, dtype=torch.float64)
    for out, layer, grad in zip(outs, layers, grads, strict=True):
        wanted = expected(x, layer, grad)
        by_x += wanted.pop(1)
        for got, one in zip([out.detach(), *(p.grad for p in layer.parameters())], wanted, strict=True):
            assert got is not None
            torch.testing.assert_close(got.double(), one, rtol=2e-6, atol=2e-6)
    assert x.grad is not None
    torch.testing.assert_close(x.grad.double(), by_x, rtol=2e-6, atol=4e-6)


def test_one_of_several_layers_is_not_used_and_others_are_frozen() -> None:
    layers = [CpuLinear(6, 4) for _ in range(3)]
    layers[0].requires_grad_(False)
    x = torch.randn(33, 6)
    joined_linear(x, layers)[1].sum().backward()  # type: ignore[no-untyped-call]
    assert layers[0].weight.grad is None
    torch.testing.assert_close(layers[1].weight.grad, x.sum(0).expand(4, 6))
    assert layers[2].weight.grad is not None
    assert not layers[2].weight.grad.any()


@pytest.mark.parametrize("kind", ["forward_pre", "forward", "full_backward_pre", "full_backward"])
def test_layers_with_hooks_are_called(kind: str) -> None:
    layers = [CpuLinear(6, 4) for _ in range(2)]
    called: list[torch.nn.Module] = []
    getattr(layers[1], f"register_{kind}_hook")(lambda layer, *_: called.append(layer))
    x = torch.randn(5, 6, requires_grad=True)
    outs = joined_linear(x, layers)
    torch.testing.assert_close(outs, tuple(F.linear(x, layer.weight, layer.bias) for layer in layers))
    torch.autograd.backward(outs, [torch.ones(5, 4)] * 2)
    assert called == [layers[1]]


@pytest.mark.parametrize("bias", [True, False])
def test_without_gradients_or_some_biases_layers_are_called(bias: bool) -> None:
    layers = [CpuLinear(6, 4), CpuLinear(6, 4, bias=bias)]
    if not bias:
        outs = joined_linear(x := torch.randn(5, 6), layers)
        torch.testing.assert_close(outs, tuple(F.linear(x, layer.weight, layer.bias) for layer in layers))
    with torch.no_grad():
        x = torch.randn(5, 6)
        assert all(torch.equal(out, layer(x)) for out, layer in zip(joined_linear(x, layers), layers, strict=True))
