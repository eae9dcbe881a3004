"""Writes a copy of the user's configuration in which only some values are changed."""

from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf

from configs.load import is_resolved_one
from configs.reading.shipped import find_config
from configs.reading.tree import Tree


def dump_changed(name: str, overrides: Sequence[str], changes: Mapping[str, Any], *, plugins: Sequence[str]) -> str:
    """The user's configuration as YAML, with overrides and changes applied; fields with default values stay omitted.

    Args:
        name: a YAML file, or the name of a shipped run.
        overrides: `section.key=value` settings.
        changes: values by dotted keys.
        plugins: paths of the plugin files that it needs.

    Raises:
        UserError: the file cannot be read.
    """
    path = find_config(name)
    tree = Tree.read(path, what=f"CONFIG: {name}", is_saved=is_resolved_one(path))
    tree.put_values({"name": tree.node.get("name") or path.stem})
    for item in overrides:
        tree.put(item)
    for key, value in changes.items():
        *sections, last = key.split(".")
        nested: Any = {last: value}
        for section in reversed(sections):
            nested = {section: nested}
        tree.put_values(nested)
    if plugins or "plugins" in tree.node:
        tree.put_values({"plugins": list(plugins)})
    return OmegaConf.to_yaml(tree.node)
