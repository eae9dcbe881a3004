"""Every test of the model runs with the equations alone and with the kernels of a CPU put over them."""

from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

from model.kernels.cpu import FASTER, use


@pytest.fixture(params=["plain", "kernels"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """In the second run whatever is made gets its kernels at once."""
    if request.param == "kernels":
        for plain in FASTER:
            monkeypatch.setattr(plain, "__init__", _with_kernels(plain.__init__))
    param: str = request.param
    return param


def _with_kernels(make: Callable[..., None]) -> Callable[..., None]:
    def init(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        use(self)

    return init
