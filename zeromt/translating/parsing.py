"""Command-line options whose value is a section's fields in YAML, as in a configuration."""

from collections.abc import Sequence
from typing import Any

from configs import ConfigError
from configs.load import parse_tree
from configs.reading.layers import Layers


def parse_option(option: str, items: Sequence[str], type_: Any) -> Any:
    """Parse a section whose fields an option of the command line sets, in YAML.

    Args:
        option: its name for messages, such as `--metrics`.
        items: `field=value` settings.
        type_: of the section.

    Raises:
        ConfigError: with every error that was found.
        UserError: a value is not valid YAML.
    """
    layers = Layers()
    for item in items:
        layers.put(item, what=option)
    try:
        return parse_tree(layers.resolved(what=option), type_, layers.leftovers)
    except ConfigError as error:
        raise ConfigError([f"--{problem}" for problem in error.problems]) from error
