"""What a device is, is asked in few places; ranks on devices that cannot work together say so before they meet."""

from pathlib import Path

import pytest

from configs import UserError
from trainer.ranks.device import settle_device

REPO = Path(__file__).parents[3]
MAY_ASK = ("model/kernels/", "trainer/engines/", "trainer/ranks/device.py")


def test_no_other_place_asks_what_a_device_is() -> None:
    files = [path for package in ("model", "trainer") for path in (REPO / package).rglob("*.py")]
    assert len(files) > 100
    names = {str(path.relative_to(REPO)) for path in files if "device.type" in path.read_text()}
    assert "trainer/ranks/device.py" in names
    assert [name for name in sorted(names) if not name.startswith(MAY_ASK)] == []


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
