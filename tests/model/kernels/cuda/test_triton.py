"""Kernels in Triton: under its interpreter they give what their plain twins give, and all become machine code.

The interpreter lets pass what the compiler refuses. Triton brings along all that compiling needs; no GPU and no CUDA
toolkit. Nothing else would tell before there is a GPU.
"""

import importlib.util
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch

from model.kernels.cuda.triton_kernels.launching import launch
from tests.forked import Forked
from tests.model.kernels.cuda import triton_calls
from tests.model.kernels.cuda.triton_calls import Case

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
interpreted = pytest.mark.skipif(triton_calls.why_not() is not None, reason=str(triton_calls.why_not()))
LOSSES: list[Case] = [
    (37, 9, "float32", 0.1, 1.0),
    (37, 9, "float32", 0.0, 1.0),
    (37, 9, "bfloat16", 0.1, 1.0),
    (37, 9, "float16", 0.1, 128.0),
    (32_000, 5, "float32", 0.1, 1.0),
    (256_206, 8, "float32", 0.1, 1.0),
    (256_206, 8, "bfloat16", 0.1, 1.0),
]


@interpreted
def test_losses(interpreter: Forked, tmp_path: Path) -> None:
    """Against torch in fp64: in fp32 its own gradient is 5e-5 off that at 256,206 pieces with smoothing."""
    [rows] = interpreter.ranks(1, triton_calls.losses, LOSSES, cwd=tmp_path, meet=False)
    most = {"loss": 1e-6, "nll": 1e-6, "gradient": 3e-6, "units": 1, "beyond": 0, "padding": 0}
    assert len(rows) == 2 * len(LOSSES)
    for row in rows:
        assert all(row[name] <= most[name] for name in most), rows


@interpreted
def test_they_give_what_their_twins_give(interpreter: Forked, tmp_path: Path) -> None:
    """Dropout drops the same, and cuts bf16 off; the others are close in parts of their largest number."""
    [results] = interpreter.ranks(1, triton_calls.twins, cwd=tmp_path, meet=False)
    for name, ours, plain in results:
        is_half = any(x.itemsize == 2 for x in plain)
        for one, other in zip(ours, plain, strict=True):
            if name == "drop":
                assert torch.equal(one == 0, other == 0)
                torch.testing.assert_close(one, other, rtol=torch.finfo(one.dtype).eps, atol=0)
            elif other.numel():
                off = 2e-2 if is_half else 1e-6 if name in ("cross_entropy_", "relu_backward") else 1e-5
                most = off * float(other.double().abs().max())
                torch.testing.assert_close(one, other, rtol=0, atol=most, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_machine_code_of_every_kernel(forked: Forked, tmp_path: Path, capability: int) -> None:
    variables = {"TRITON_CACHE_DIR": str(tmp_path / "cache")}
    [sizes] = forked.ranks(1, triton_calls.cubins, capability, cwd=tmp_path, meet=False, variables=variables)
    assert all(size > 1000 for size in sizes.values()), sizes
    folder = Path(__file__).parents[4] / "model" / "kernels" / "cuda" / "triton_kernels"
    kernels = {file.stem for file in folder.glob("*.py") if "@triton.jit" in file.read_text()}
    assert {name.partition(".")[0] for name in sizes} == kernels


def test_no_batch_and_no_layer_compiles_anew(forked: Forked, tmp_path: Path) -> None:
    [names] = forked.ranks(1, triton_calls.specialised, cwd=tmp_path, meet=False)
    assert {"vocab", "logits"} <= names
    assert not names & {"num_rows", "num_tokens", "programs", "losses_stride", "site"}
    assert not names & {"tokens", "targets", "losses"}, "parts of other tensors, which begin anywhere"


def test_what_is_compiled_is_launched_again() -> None:
    """With the same arguments, unless a number is another or a tensor does not begin at 16 bytes."""
    kernel = MagicMock()
    compiling = kernel.__getitem__.return_value
    again = compiling.return_value.__getitem__.return_value
    wide, apart = torch.zeros(3, 64), torch.zeros(3 * 64 + 1)[1:].view(3, 64)
    for x, site in ((wide, 1), (wide, 1), (wide, 16), (apart, 1), (apart, 1)):
        launch(kernel, (3, 1, 1), [x], [site, 0.5], {"BLOCK": 8}, variant=[site], num_warps=4)
    [launched] = again.call_args_list
    assert launched.args[0] is wide
    assert launched.args[1:] == (1, 0.5, 8)
    assert [call.args[1] for call in compiling.call_args_list] == [1, 16, 1, 1]
