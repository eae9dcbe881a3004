"""What a device is, is asked in few places; ranks on devices that cannot work together say so before they meet."""

from pathlib import Path

import pytest
import torch

from configs import UserError
from trainer.ranks.device import check_card, describe_uneven, settle_device

REPO = Path(__file__).parents[3]
MAY_ASK = ("model/kernels/", "trainer/engines/", "trainer/ranks/device.py")


def test_no_other_place_asks_what_a_device_is() -> None:
    files = [path for package in ("model", "trainer") for path in (REPO / package).rglob("*.py")]
    assert len(files) > 100
    found = {str(path.relative_to(REPO)) for path in files if "device.type" in path.read_text()}
    assert "trainer/ranks/device.py" in found
    assert [name for name in sorted(found) if not name.startswith(MAY_ASK)] == []


def test_ranks_that_wait() -> None:
    assert describe_uneven(8, 4) is None
    found = describe_uneven(10, 4)
    assert found is not None
    assert "2 of them have one less than the others and wait for these, 17% of the GPUs' time" in found


@pytest.mark.parametrize(("given", "has_gpu"), [("cuda", False), ("cpu", True)])
def test_deepspeed_that_is_told_to_use_another_device(
    given: str, has_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: has_gpu)
    monkeypatch.setenv("DS_ACCELERATOR", given)
    with pytest.raises(
        UserError, match=f"^DS_ACCELERATOR: '{given}' with engine.device=auto, which is c.* here; leave"
    ):
        settle_device("auto")
    monkeypatch.setenv("DS_ACCELERATOR", "cuda" if has_gpu else "cpu")
    settle_device("auto")


@pytest.mark.parametrize(
    ("capability", "built_for", "runs"),
    [
        ((7, 0), ["sm_50", "sm_90"], True),
        ((7, 0), ["sm_75", "sm_80", "sm_120", "compute_120"], False),
        ((8, 9), ["sm_75", "sm_80", "sm_100"], True),  # L4, by the binary for 8.0
        ((9, 0), ["sm_90a"], True),
        ((9, 0), ["gfx942"], True),
    ],
)
def test_a_card_that_torch_has_no_code_for(
    capability: tuple[int, int], built_for: list[str], runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_card(torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla V100-SXM2-32GB")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: built_for)
    if runs:
        check_card(torch.device("cuda", 0))
        return
    with pytest.raises(UserError, match=r"^engine\.device: Tesla V100-SXM2-32GB has compute capability 7\.0, "):
        check_card(torch.device("cuda", 0))
