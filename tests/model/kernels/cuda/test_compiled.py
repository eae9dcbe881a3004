"""Every kernel in Triton becomes machine code of a GPU: the interpreter lets pass what the compiler refuses.

Triton brings along all that this needs; no GPU and no CUDA toolkit. It takes seconds, and nothing else would tell
before there is a GPU.
"""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from model.kernels.cuda.triton_kernels.launching import launch
from tests.forked import Forked
from tests.model.kernels.cuda import compiled

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_machine_code_of_every_kernel(forked: Forked, tmp_path: Path, capability: int) -> None:
    variables = {"TRITON_CACHE_DIR": str(tmp_path / "cache")}
    [found] = forked.ranks(1, compiled.cubins, capability, cwd=tmp_path, meet=False, variables=variables)
    assert all(size > 1000 for size in found.values()), found
    folder = Path(__file__).parents[4] / "model" / "kernels" / "cuda" / "triton_kernels"
    kernels = {file.stem for file in folder.glob("*.py") if "@triton.jit" in file.read_text()}
    assert {name.partition(".")[0] for name in found} == kernels


def test_no_batch_and_no_layer_compiles_anew(forked: Forked, tmp_path: Path) -> None:
    [found] = forked.ranks(1, compiled.specialised, cwd=tmp_path, meet=False)
    assert {"vocab", "logits"} <= set(found)
    assert not set(found) & {"num_rows", "num_tokens", "programs", "losses_stride", "site"}
    assert not set(found) & {"tokens", "targets", "losses"}, "parts of other tensors, which begin anywhere"


class _Kernel:
    """Compiles nothing and notes its launches; what was compiled is another one."""

    def __init__(self) -> None:
        self.fn, self.compiled = object(), self
        self.launched: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: Any) -> Any:
        def run(*arguments: Any, **constants: Any) -> Any:
            self.launched.append((*arguments, *constants.values()))
            return self.compiled

        return run


def test_what_is_compiled_is_launched_again() -> None:
    """With the same arguments, unless a number is another or a tensor does not begin at 16 bytes."""
    kernel: Any = _Kernel()
    kernel.compiled = compiled_one = _Kernel()
    wide, apart = torch.zeros(3, 64), torch.zeros(3 * 64 + 1)[1:].view(3, 64)
    for x, site in ((wide, 1), (wide, 1), (wide, 16), (apart, 1), (apart, 1)):
        launch(kernel, (3, 1, 1), [x], [site, 0.5], {"BLOCK": 8}, variant=[site], num_warps=4)
    assert [(x.data_ptr(), *rest) for x, *rest in compiled_one.launched] == [(wide.data_ptr(), 1, 0.5, 8)]
    assert [rest[:1] for _, *rest in kernel.launched] == [[1], [16], [1], [1]]
