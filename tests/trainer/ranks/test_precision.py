from pathlib import Path
from unittest import mock

import pytest
import torch

from model.kernels.cpu import decoding
from tests.forked import Forked
from trainer.ranks.distributed import World
from trainer.ranks.precision import agreed_precision, resolve_precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("abilities", "is_intel", "expected"),
    [
        ({"amx_bf16", "avx512_bf16"}, True, "bf16"),
        ({"avx512_bf16"}, False, "bf16"),
        ({"avx512_bf16"}, True, "fp32"),
        (set(), True, "fp32"),
        (set(), False, "fp32"),
    ],
)
def test_auto_on_a_cpu(abilities: set[str], is_intel: bool, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("amx_bf16", "avx512_bf16", "avx2")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {name: name in abilities for name in names})
    monkeypatch.setattr(decoding, "_is_intel", lambda: is_intel)
    assert resolve_precision("auto", CPU) == expected
    assert [resolve_precision(asked, CPU) for asked in ("fp32", "bf16")] == ["fp32", "bf16"]


def test_names_of_abilities() -> None:
    """As this torch gives them, on x86."""
    capabilities = torch.cpu.get_capabilities()
    if capabilities["architecture"] == "x86_64":
        assert {"amx_bf16", "avx512_bf16"} <= capabilities.keys()


def agree(world: World) -> list[str]:
    """As a rank, of which rank 1 alone has a CPU that is slower in bf16."""
    with mock.patch.object(decoding, "bf16_is_faster", return_value=world.rank != 1):
        return [agreed_precision(asked, world) for asked in ("auto", "bf16", "fp32")]


def test_ranks_agree(tmp_path: Path, forked: Forked) -> None:
    assert forked.ranks(2, agree, cwd=tmp_path) == [["fp32", "bf16", "fp32"]] * 2
