"""Every kernel in Triton becomes machine code of a GPU: the interpreter lets pass what the compiler refuses.

Triton brings along all that this needs; no GPU and no CUDA toolkit. It takes seconds, and nothing else would tell
before there is a GPU.
"""

import importlib.util
from pathlib import Path

import pytest

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


def test_what_is_compiled_is_launched_again(forked: Forked, tmp_path: Path) -> None:
    """With the same arguments as by Triton's own way, which a tensor takes that does not begin at 16 bytes."""
    variables = {"TRITON_CACHE_DIR": str(tmp_path / "cache")}
    [found] = forked.ranks(1, compiled.launched, cwd=tmp_path, meet=False, variables=variables)
    looks = [number for _, number in found]
    assert looks == [1, 1, 1, 2, 3, 4]
    given = [arguments for arguments, _ in found]
    assert given[0] == given[1] == given[5] == [(3, 1, 1), True, True, 1, 2**30, 4 / 3, 64, 16]
    assert given[2] == [*given[0][:3], 16, *given[0][4:]]
