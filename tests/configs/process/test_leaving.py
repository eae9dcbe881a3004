"""How processes with torch in them end."""

import gc
import sys
from types import ModuleType

import pytest

from configs.process.with_torch import collect_nothing


@pytest.mark.parametrize(("builder", "collects"), [("pybind11_builtins", False), ("nanobind", True), (None, False)])
def test_what_nanobind_would_report_is_collected(
    builder: str | None, collects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if builder is not None:
        library = ModuleType("libtriton")
        library.ir = ModuleType("ir")  # type: ignore[attr-defined]
        library.ir.builder = type("kind", (type,), {"__module__": builder})("builder", (), {})
        monkeypatch.setitem(sys.modules, "triton._C.libtriton", library)
    else:
        monkeypatch.delitem(sys.modules, "triton._C.libtriton", raising=False)
    called: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: called.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: called.append("unfreeze"))
    collect_nothing()
    assert called == ["unfreeze" if collects else "freeze"]
