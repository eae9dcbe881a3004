"""A model's fields in one place, for equations that are written over all of them and options that are drawn of all."""

import dataclasses
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from configs import ModelSection, preset_model

_NAMES = {
    "attention": ("attention", "kind"),
    "num_heads": ("attention", "num_heads"),
    "num_kv_heads": ("attention", "num_kv_heads"),
    "head_width": ("attention", "head_width"),
    "attention_bias": ("attention", "bias"),
    "attention_output_bias": ("attention", "output_bias"),
    "attention_scale": ("attention", "scale"),
    "attention_dropout": ("attention", "dropout"),
    "activation": ("feed_forward", "kind"),
    "d_ff": ("feed_forward", "d_ff"),
    "feed_forward_bias": ("feed_forward", "bias"),
    "activation_dropout": ("feed_forward", "dropout"),
    "initialisation": ("initialisation", "kind"),
    "norm": ("norm", "kind"),
    "norm_eps": ("norm", "eps"),
    "norm_position": ("residual", "kind"),
    "positions": ("positions", "kind"),
    "position_base": ("positions", "base"),
    "position_layout": ("positions", "layout"),
    "position_offset": ("positions", "offset"),
}
"""Names of the parts' fields here, and where they stand."""


def flat(section: ModelSection) -> Any:
    """The fields of the section and of its parts by these names; None where a part has no such field."""
    tree = dataclasses.asdict(section)
    return SimpleNamespace(**{**tree, **{name: tree[part].get(field) for name, (part, field) in _NAMES.items()}})


def nested(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by these names as a configuration has them."""
    tree: dict[str, Any] = {}
    for name, value in fields.items():
        if name in _NAMES and not isinstance(value, Mapping):
            part, field = _NAMES[name]
            tree.setdefault(part, {})[field] = value
        else:
            tree[name] = value
    return tree


def section_of(**fields: Any) -> ModelSection:
    """The section `model` with fields by these names."""
    return preset_model(None, nested(fields))
