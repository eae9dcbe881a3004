"""A kind alone of a part of the model (`model.norm: rms`) as a section, in each layer before layers are merged.

So `model.norm=rms` changes the kind, and the fields that a preset or the file sets stay.
"""

from typing import Any

from configs.reading.scalars import Place

_PARTS = ("attention", "feed_forward", "initialisation", "norm", "positions", "residual")


def with_sections(tree: dict[str, Any]) -> dict[str, Any]:
    """A layer in which each part of the model that is a kind alone is a section with this kind."""
    model = tree.get("model")
    if not isinstance(model, dict):
        return tree
    alone = {part: {"kind": model[part]} for part in _PARTS if isinstance(model.get(part), str)}
    return {**tree, "model": {**model, **alone}} if alone else tree


def place_in(tree: dict[str, Any], place: Place) -> Place:
    """Where the value at a place of the layer is after `with_sections`: that of a kind alone is one step deeper.

    Args:
        tree: the layer as it was given.
        place: of a value in it, or of all that is in it.
    """
    model = tree.get("model")
    is_alone = len(place) == 2 and place[0] == "model" and place[1] in _PARTS
    return (*place, "kind") if is_alone and isinstance(model, dict) and isinstance(model.get(place[1]), str) else place
