"""Linear layers against the same in fp64."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from model import linear as linear_module
from model.linear import Linear, has_onednn, multiply, rounded_rows, without_onednn
from tests.flops import flop_counter


@pytest.fixture(autouse=True)
def _products_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to oneDNN, whatever the processor."""
    monkeypatch.setattr(linear_module, "_onednn_is_wanted", has_onednn())
    monkeypatch.setattr(linear_module, "LEAST_MULTIPLICATIONS", 1)


def expected(x: Tensor, layer: Linear, grad: Tensor) -> list[Tensor]:
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
    layer = Linear(inner, outer, bias=bias)
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
    layer = Linear(6, 4)
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
    layer, x = Linear(6, 4).bfloat16(), torch.randn(*shape, 6).bfloat16().requires_grad_()
    grad = torch.randn(*shape, 4).bfloat16()
    layer(x).backward(grad)
    found = [x.grad, layer.weight.grad, layer.bias.grad]
    for got, wanted in zip(found, expected(x, layer, grad)[1:], strict=True):
        assert got is not None
        assert got.dtype == torch.bfloat16
        torch.testing.assert_close(got.double(), wanted, rtol=1e-2, atol=2e-2)


def test_rounded_rows() -> None:
    for num_rows in range(5000):
        above, below = rounded_rows(num_rows), rounded_rows(num_rows, up=False)
        assert below <= num_rows <= above
        assert max(above - num_rows, num_rows - below) * 16 <= num_rows
        assert rounded_rows(above) == rounded_rows(above, up=False) == above
    assert len({rounded_rows(n) for n in range(1024, 2048)}) <= 17


def test_rounded_rows_with_a_least_step() -> None:
    assert {rounded_rows(n, least_step=32) for n in range(1, 513)} == set(range(32, 513, 32))
    assert all(rounded_rows(n, least_step=32) == rounded_rows(n) for n in range(512, 5000))


@pytest.mark.skipif(not has_onednn(), reason="torch was built without oneDNN")
def test_few_numbers_of_rows_are_multiplied() -> None:
    layer = Linear(6, 4)
    flops = [sum(operators(torch.randn(n, 6, requires_grad=True), layer).values()) for n in (1921, 1950, 1984, 1985)]
    assert flops[0] == flops[1] == flops[2] == 3 * 2 * 1984 * 6 * 4
    assert flops[3] == 3 * 2 * 2048 * 6 * 4


@pytest.mark.parametrize("frozen", [{"x"}, {"weight"}, {"bias"}, {"weight", "bias"}], ids="-".join)
def test_some_frozen(frozen: set[str]) -> None:
    layer = Linear(6, 4)
    x = torch.randn(5, 6, requires_grad=True)
    leaves = {"x": x, **dict(layer.named_parameters())}
    for name in frozen:
        leaves[name].requires_grad_(False)
    layer(x).sum().backward()
    assert {name for name, leaf in leaves.items() if leaf.grad is None} == frozen


def test_no_rows_and_other_precisions() -> None:
    layer = Linear(6, 4)
    layer(torch.empty(0, 6)).sum().backward()
    assert layer.weight.grad is not None
    assert not layer.weight.grad.any()
    x = torch.randn(5, 6, dtype=torch.float64)
    torch.testing.assert_close(layer.double()(x), F.linear(x, layer.weight, layer.bias), rtol=0, atol=0)
    low = layer.bfloat16()
    torch.testing.assert_close(low(x.bfloat16()), F.linear(x.bfloat16(), low.weight, low.bias), rtol=0, atol=0)
    with torch.no_grad():
        assert not low(x.bfloat16()).requires_grad


def operators(x: Tensor, layer: Linear) -> dict[str, int]:
    """FLOPs of forward and backward by operator."""
    with flop_counter() as counter:
        layer(x).sum().backward()
    return {str(op): n for op, n in counter.get_flop_counts()["Global"].items()}


@pytest.mark.skipif(not has_onednn(), reason="torch was built without oneDNN")
def test_large_products_in_fp32_go_to_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_module, "LEAST_MULTIPLICATIONS", 5 * 6 * 4)
    layer = Linear(6, 4)
    assert operators(torch.randn(5, 6, requires_grad=True), layer) == {"mkldnn._linear_pointwise": 3 * 2 * 5 * 6 * 4}
    assert "mkldnn._linear_pointwise" not in operators(torch.randn(4, 6, requires_grad=True), layer)
    with without_onednn():
        assert "mkldnn._linear_pointwise" not in operators(torch.randn(5, 6, requires_grad=True), layer)
    assert "mkldnn._linear_pointwise" in operators(torch.randn(5, 6, requires_grad=True), layer)
