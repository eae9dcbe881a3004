"""What a device is, is asked in few places."""

from pathlib import Path

REPO = Path(__file__).parents[3]
MAY_ASK = ("model/kernels/", "trainer/engines/", "trainer/ranks/device.py")


def test_no_other_place_asks_what_a_device_is() -> None:
    files = [path for package in ("model", "trainer") for path in (REPO / package).rglob("*.py")]
    assert len(files) > 100
    found = {str(path.relative_to(REPO)) for path in files if "device.type" in path.read_text()}
    assert "trainer/ranks/device.py" in found
    assert [name for name in sorted(found) if not name.startswith(MAY_ASK)] == []
