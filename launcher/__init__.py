"""Starts, watches and stops runs: torchrun here, SLURM on a cluster. Imports no torch.

`resolve` keeps `zeromt --help` quick: a command's module is imported only when it is called.
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
