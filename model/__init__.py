"""The Transformer, its loss and its search. It depends on neither files nor ranks nor DeepSpeed.

Shape suffixes used throughout: B batch (sentences), S source length, T target length, L any length, D model width,
H heads, K head width, V vocabulary, N rows of any kind (tokens, or sentences times beam).

The parts that a configuration selects are in `model.components`, which must import without torch. So this package
imports its modules only on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model import reference
    from model.transformer import Objective, ObjectiveOutput, SpecialIds, Transformer, build_transformer

__all__ = [
    "Objective",
    "ObjectiveOutput",
    "SpecialIds",
    "Transformer",
    "build_transformer",
    "reference",
]


def __getattr__(name: str) -> Any:
    if name == "reference":
        return importlib.import_module("model.reference")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("model.transformer"), name)
