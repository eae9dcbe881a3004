"""The profile of a site: `scheduler: KIND`, and a section for each kind of cluster. Examples are in `configs/sites/`.

The fields of a section are those of the cluster, a component of the family `cluster`.
"""

import dataclasses
import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.components import kinds, unknown
from configs.errors import ConfigError, UserError
from configs.load import parse_tree
from configs.process import files
from configs.reading.own_files import other_kind
from configs.reading.shipped import no_yaml, shipped
from configs.reading.tree import Tree

SCHEDULER = "scheduler"


def load_site(
    kind: str,
    name: str | None = None,
    settings: Sequence[str] = (),
    changes: Mapping[str, object] | None = None,
) -> Any:
    """Read the profile of a site; returns the cluster.

    Args:
        kind: kind of the cluster.
        name: a YAML file, or the name of a shipped profile; None uses the defaults.
        settings: `key=value`, which replace fields in the section of this kind. Values are read as YAML.
        changes: values by field, which replace fields in the same section; mappings are merged.

    Raises:
        ConfigError: the profile has errors; the message has a line for each.
        UserError: the file does not exist or cannot be read, or is a profile for another scheduler.
    """
    what = f"--site: {name}"
    tree = Tree.empty() if name is None else Tree.read(_find(name), what=what)
    for item in settings:
        if not re.match(r"[A-Za-z_][A-Za-z0-9_.\[\]]*=", item):
            raise UserError(f"--set: {item!r}; allowed is KEY=VALUE with a key of the site's profile")
        tree.put(item if item.startswith(f"{kind}.") else f"{kind}.{item}", what="--set")
    plain = tree.plain(what=what)
    if name is not None and (said := other_kind(plain, "site", name)) is not None:
        raise UserError(f"{what}: {said}")
    problems = list(_problems(plain, kind, what))
    section = plain.get(kind, {})
    if not isinstance(section, dict):
        raise ConfigError([*problems, f"{kind}: {json.dumps(section)}; write a section with keys"])
    texts = {place[1:]: text for place, text in tree.texts.items() if place[:1] == (kind,)}
    try:
        cluster = parse_tree(_changed(section, changes or {}), kinds("cluster")[kind], texts)
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems]) from error
    if problems:
        raise ConfigError(problems)
    return cluster


def _problems(profile: Mapping[str, Any], kind: str, what: str) -> Iterator[str]:
    """Errors of a profile outside the section that is used."""
    known = kinds("cluster")
    fields = [field.name for field in dataclasses.fields(known[kind])]
    names = {name: name for name in (SCHEDULER, *known)} | {f: f"{kind}.{f}" for f in fields}
    for key in profile:
        if key != SCHEDULER and key not in known:
            near = difflib.get_close_matches(str(key), names, n=1, cutoff=0.5)
            hint = f"did you mean {names[near[0]]}?" if near else f"allowed: {', '.join([SCHEDULER, *known])}"
            yield f"{key}: unknown key; {hint}"
    chosen = profile.get(SCHEDULER)
    sections = [key for key in profile if key in known]
    if chosen is not None and not (isinstance(chosen, str) and chosen in known):
        yield f"{SCHEDULER}: {unknown(chosen, known)}"
    elif chosen is not None and chosen != kind:
        yield f"{what}: {SCHEDULER}: {chosen}; use `zeromt launch {chosen}`, or a profile for {kind}"
    elif chosen is None and sections and kind not in sections:
        yield f"{what}: has a section {sections[0]} but none for {kind}; use `zeromt launch {sections[0]}`"


def _changed(section: dict[str, Any], changes: Mapping[str, object]) -> dict[str, Any]:
    """A copy of a section with changed values."""
    merged = dict(section)
    for name, value in changes.items():
        before = merged.get(name)
        merged[name] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def _find(name: str) -> Path:
    path = Path(name)
    with files.naming("--site"):
        if files.is_file(path):
            return path
    known = shipped("configs.sites")
    if name in known:
        return known[name]
    raise no_yaml("--site", name, known)
