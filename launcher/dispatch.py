"""Finds a command's function by name, importing its module only when needed.

This is what keeps `zeromt --help` quick and the launcher free of torch.
"""

import importlib
from collections.abc import Callable
from typing import Any


def resolve(target: str) -> Callable[..., Any]:
    """The function that `module:function` names; imports its module."""
    from configs.process.with_torch import quick_imports

    module, _, function = target.partition(":")
    with quick_imports():
        resolved: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return resolved
