"""First and last layers of a sub-layer, which take over what stands beside them."""

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from model.kernels.cuda import operators
from tests.forked import Forked
from tests.model.kernels.cuda import interpreted


@interpreted.needed
def test_triton_under_its_interpreter(interpreter: Forked, tmp_path: Path) -> None:
    cases = [(5, 12, "float32"), (700, 33, "float32"), (300, 48, "bfloat16"), (1, 16, "float16")]
    [found] = interpreter.ranks(1, interpreted.relus, cases, cwd=tmp_path, meet=False)
    for case, off in zip(cases, found, strict=True):
        assert off <= (1e-6 if case[2] == "float32" else 2e-2), case


def test_kernels_start_on_their_tensors_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton starts them on the current device, which may be another: their pointers would mean nothing there."""
    seen: list[Any] = []

    @contextlib.contextmanager
    def on(device: torch.device) -> Iterator[None]:
        seen.append(device)
        yield
        seen.append("left")

    kernels = SimpleNamespace(some=lambda *args: seen.append("runs"))
    monkeypatch.setattr(torch.cuda, "device", on)
    monkeypatch.setattr(importlib, "import_module", lambda _: kernels)
    operators._on_gpu("some")(torch.zeros(2), 1)
    assert seen == [torch.device("cpu"), "runs", "left"]
