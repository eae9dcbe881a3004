"""The recipe of a dataset: all that determines its bytes, as plain JSON. Two preparations are the same if it is equal.

`settings` has the fields of `prepare` that matter, with files by name and plugins by hash; `contents` the hashes of
files; `made_with` versions of packages. A run compares settings alone, as the files may be gone.
"""

import dataclasses
import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import regex
import sentencepiece

from configs import CorpusFiles, PrepareSection, UserError
from configs.plugins import label, origin_of
from configs.process.files.inside import read_bytes
from configs.reading.variables import as_saved
from data_pipeline.preparation.cleaning import filters_of
from data_pipeline.preparation.filters.texts import LanguageIdentification
from data_pipeline.preparation.identification import PY3LANGID
from data_pipeline.preparation.staging import SPLITS, Input
from data_pipeline.prepared.index import INDEX_FILE, DatasetIndex, hash_file, parse_index
from data_pipeline.tokenizer import Tokenizer

DECIDE_NOTHING = ("output", "root", "workers", "max_unknown")
MAY_DIFFER = frozenset({"tokenizer.threads", "record_places"})
"""Settings that may differ between a section and the dataset that a run reads."""

Settings = dict[str, Any]
"""Values by field path, such as `tokenizer.kind`."""


def make_recipe(section: PrepareSection, inputs: Sequence[Input], tokenizer: Tokenizer | None) -> dict[str, Any]:
    """The recipe of the dataset that a section describes.

    Args:
        section: what to prepare.
        inputs: its files.
        tokenizer: an existing one, whose fingerprint takes the place of the settings of training one.
    """
    settings = _settings_of(section)
    if tokenizer is not None:
        settings["tokenizer"] = {"fingerprint": tokenizer.fingerprint}
    contents: dict[str, Any] = {}
    for file in inputs:
        contents.setdefault(file.split, []).append([file.name, file.sha256])
    filters = filters_of(section).values()
    models = {one.model for one in filters if isinstance(one, LanguageIdentification)} - {PY3LANGID}
    contents["models"] = [[path.name, hash_file(path)] for path in sorted(map(Path, models)) if path.is_file()]
    made_with = {
        "sentencepiece": sentencepiece.__version__,
        "unicode": unicodedata.unidata_version,
        "regex": regex.__version__,
    }
    return {"settings": settings, "contents": contents, "made_with": made_with}


def is_already_prepared(output: Path, recipe: Mapping[str, Any]) -> bool:
    """Whether the output is the dataset of this recipe, perhaps made with other versions.

    Raises:
        UserError: it is something else, which is never overwritten.
    """
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return False
    advice = "choose another prepare.output"
    if not (output / INDEX_FILE).is_file():
        raise UserError(f"prepare.output: {output} exists and is not a prepared dataset; {advice}")
    existing = parse_index(read_bytes(output / INDEX_FILE), output / INDEX_FILE).recipe
    if changed := differences(existing, recipe):
        advice = f"{advice}, or begin anew (--replace)"
        raise UserError(f"prepare.output: {output} holds another dataset ({', '.join(changed)}); {advice}")
    return True


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """In what two recipes differ but for versions, one text for each setting and kind of file."""
    settings, contents = (_changes(old.get(one, {}), new[one]) for one in ("settings", "contents"))
    texts = [f"{key} was {was!r} and is {now!r}" for key, was, now in settings]
    for kind, was, now in contents:
        names = [name for name, digest in now or () if [name, digest] not in (was or ())]
        texts.append(f"{kind}: another content of {', '.join(names) or 'files that are gone'}")
    return texts


def stale_fields(section: PrepareSection, index: DatasetIndex) -> list[str]:
    """The settings in which a section differs from its dataset, one text each.

    In a section without training text, which does not describe a preparation, only fields that are not at their default
    are compared. Nor are those of training a tokenizer where either took an existing one.
    """
    old, new = dict(index.recipe.get("settings", {})), _settings_of(section)
    if section.tokenizer.path is not None or "fingerprint" in old.get("tokenizer", {}):
        del old["tokenizer"], new["tokenizer"]
    if section.pairs_per_block is None:  # the default matches whatever preparation chose
        old["pairs_per_block"] = None
    defaults = _flat(_settings_of(PrepareSection()))
    return [
        f"prepare.{key}: {_shown(now)}, the dataset has {_shown(was)}"
        for key, was, now in _changes(old, new)
        if key not in MAY_DIFFER and not (section.train.is_empty and now == defaults.get(key))
    ]


def stale_error(fields: Sequence[str], where: str, command: str) -> UserError:
    """The error for a section that does not match its dataset, because a run would record false settings.

    Args:
        fields: from `stale_fields`.
        where: the dataset's folder.
        command: the command that prepares what the section describes.
    """
    return UserError(
        f"{'; '.join(fields)}; {where} was prepared before this was changed: run `{command}` with another "
        "prepare.output, or set what the dataset was made with, or name it in stream.datasets"
    )


def _settings_of(section: PrepareSection) -> Settings:
    """The fields that decide a dataset, with files by name and without values of variables."""
    section = as_saved(section)
    settings = {key: value for key, value in dataclasses.asdict(section).items() if key not in DECIDE_NOTHING}
    settings |= {split: _corpus(getattr(section, split)) for split in SPLITS}
    settings["cleaning"]["language_model"] = Path(section.cleaning.language_model).name
    settings["filters"] = [
        {name: value for name, value in dataclasses.asdict(filter_).items() if name not in filter_.decides_nothing}
        for filter_ in section.filters
    ]
    settings["scores"] = {name: {"field": str(field)} for name, field in section.train.scores.items()}
    settings["scores"] |= {name: {"command": list(one.command)} for name, one in section.scores.items()}
    components = [*section.filters, *(getattr(section, split).reader for split in SPLITS)]
    origins = {label(type(one)): origin_of(type(one)) for one in components}
    settings["plugins"] = {name: origin.sha256 for name, origin in origins.items() if origin and origin.sha256}
    plain: Settings = json.loads(json.dumps(settings))
    return plain


def _corpus(files: CorpusFiles) -> Settings:
    """A corpus's settings, with files by name."""
    settings = dataclasses.asdict(files)
    del settings["scores"]
    return settings | {key: [Path(path).name for path in settings[key]] for key in ("source", "target", "files")}


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """The settings in which two trees differ: path, old and new value; None where there is none."""
    was, now = _flat(old), _flat(new)
    yield from ((key, was.get(key), now.get(key)) for key in {**now, **was} if was.get(key) != now.get(key))


def _flat(tree: Any, where: str = "") -> Settings:
    if not isinstance(tree, dict):
        return {where: tree}
    flat: Settings = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{where}.{key}" if where else key)
    return flat


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
