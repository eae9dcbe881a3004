"""Options of the command line that replace fields of a section, such as the run's search."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from configs import ConfigError, SearchSection, UserError
from configs.components import make
from configs.load import parse_tree
from configs.reading.layers import Layers
from model.parts import Sampler

_OF_SAMPLERS = ("temperature", "top_k", "top_p", "epsilon")


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


def search_section(section: SearchSection, given: Mapping[str, Any], number: int = 1) -> SearchSection:
    """The run's search settings, overridden by those of the command line.

    Several translations of a line are found by a beam of as many, unless a beam is given or they are sampled.

    Args:
        section: the run's.
        given: fields by name, and `sample` and a sampler's.
        number: of translations of a line.

    Raises:
        UserError: they contradict each other.
    """
    given = dict(given)
    sampler = _sampler(section.sampler, given)
    if sampler is None:
        given.setdefault("beam", max(section.beam, number))
    elif section.sampler is None:
        given.setdefault("beam", 1)
    changed = dataclasses.replace(section, **given, sampler=sampler)
    for problem in changed.problems():
        name, _, rest = problem.partition(":")
        raise UserError(f"--{name.replace('_', '-')}:{rest}")
    if sampler is None and number > changed.beam:
        raise UserError(f"--beam: {changed.beam} for {number} translations of a line; give {number} or more")
    return changed


def _sampler(sampler: Sampler | None, given: dict[str, Any]) -> Sampler | None:
    """The run's sampler, overridden by the command line's settings for it, which are removed from `given`."""
    named, is_wanted = given.pop("sampler", None), given.pop("sample", False)
    if named is not None:
        section: SearchSection = parse_option("--sampler", [f"sampler={named}"], SearchSection)
        sampler = section.sampler
    elif is_wanted and sampler is None:
        sampler = make("sampler", "truncated")
    fields = {name: given.pop(name) for name in _OF_SAMPLERS if name in given}
    for name, value in fields.items():
        option = f"--{name.replace('_', '-')}: {value}"
        if sampler is None:
            raise UserError(f"{option} without --sample; give both")
        if name not in {field.name for field in dataclasses.fields(sampler)}:
            raise UserError(f"{option} with the sampler {sampler.kind}, which has no such field; leave it out")
    return sampler if sampler is None else dataclasses.replace(sampler, **fields)
