"""The recipe of a dataset: everything that determines its bytes; and whether a `prepare` section still matches it."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from configs import CorpusFiles, PrepareSection, UserError
from configs.languages import same_language
from configs.plugins import label, origin_of
from configs.process.files.inside import read_bytes
from configs.reading.variables import as_saved
from data_pipeline.preparation.cleaning import filters_of
from data_pipeline.preparation.filters.languages import LanguageIdentification
from data_pipeline.preparation.identification import PY3LANGID
from data_pipeline.preparation.raw.lines import corpus_paths
from data_pipeline.preparation.scoring.sources import made_by
from data_pipeline.preparation.staging import SPLITS, Input
from data_pipeline.preparation.tokenizing import existing_tokenizer
from data_pipeline.prepared.index import INDEX_FILE, DatasetIndex, hash_file, parse_index
from data_pipeline.tokenizer import Tokenizer

NOT_IN_RECIPE = ("output", "root", "workers", *SPLITS, "max_unknown", "scores")
MAY_DIFFER = frozenset({"tokenizer.threads", "record_places"})
"""Settings that may differ between a section and its dataset."""

MODELS = "models."
"""Begins the keys of models' hashes, which are compared when a dataset is prepared, not when it is read."""

Settings = dict[str, Any]
"""Values by field path, such as `tokenizer.kind`."""


def make_recipe(section: PrepareSection, inputs: list[Input], tokenizer: Tokenizer | None) -> dict[str, Any]:
    """What determines the dataset's bytes, as plain JSON: settings, and inputs by content (not by path)."""
    settings = _settings_of(section) | {"models": dict(_models(section))}
    if tokenizer is not None:  # instead of the settings of training one
        settings["tokenizer"] = {"fingerprint": tokenizer.fingerprint}
    texts = [f for f in inputs if f.split in SPLITS]
    files = [{"split": f.split, "file": f.name, "bytes": f.bytes, "sha256": f.sha256} for f in texts]
    forms = {split: form for split in SPLITS if (form := _form(getattr(section, split))) is not None}
    tree = {"settings": settings, "inputs": files, "forms": forms}
    if depends := {f"{f.split}.{f.name}": f.sha256 for f in inputs if f.split.startswith("filters.")}:
        tree["depends"] = depends
    if deciding := {name for filter_ in section.filters for name in filter_.score_names()}:
        tree["scores"] = {name: made for name, made in made_by(section, inputs).items() if name in deciding}
    recipe: dict[str, Any] = json.loads(json.dumps(tree))
    return recipe


def is_already_prepared(output: Path, recipe: dict[str, Any], *, gives_way: bool = False) -> bool:
    """Whether the output is the dataset of this recipe.

    Args:
        output: the folder.
        recipe: of the wanted dataset.
        gives_way: whether an existing dataset that differs only in its tokenizer may be replaced.

    Raises:
        UserError: it is something else, which is never overwritten.
    """
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return False
    advice = "remove it, or choose another prepare.output"
    if not (output / INDEX_FILE).is_file():
        raise UserError(f"prepare.output: {output} exists and is no prepared dataset; {advice}")
    existing = parse_index(read_bytes(output / INDEX_FILE), output / INDEX_FILE).recipe
    settings, is_same_text = _changed_settings(existing, recipe), not list(_other_files(existing, recipe))
    changed = [line for line in settings if not (gives_way and line.startswith("tokenizer."))]
    if not changed:
        if is_same_text:
            return not settings
        changed = ["other input files"]
    raise UserError(f"prepare.output: {output} holds another dataset ({', '.join(changed)}); {advice}")


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """In what two recipes differ, one text for each setting and each kind of change of the files."""
    return [*_changed_settings(old, new), *_other_files(old, new)]


def _changed_settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    was, is_ = (
        _settings_in(one)
        | _flat({**one.get("depends", {}), "scores": one.get("scores", {}), "sources": one.get("sources", {})})
        for one in (old, new)
    )
    return [f"{key} was {was.get(key)!r} and is {is_.get(key)!r}" for key in _different(was, is_)]


def _other_files(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """In what the files of two recipes differ."""
    was, is_ = ([(f["split"], f["file"], f["sha256"]) for f in one.get("inputs", [])] for one in (old, new))
    if was != is_:
        for split in SPLITS:
            ours, theirs = ([(file, digest) for of, file, digest in one if of == split] for one in (was, is_))
            names, others = ([file for file, _ in one] for one in (ours, theirs))
            if names != others:
                yield f"{split} was {', '.join(names) or 'none'} and is {', '.join(others) or 'none'}"
            elif changed := [file for (file, digest), one in zip(theirs, ours, strict=True) if (file, digest) != one]:
                yield f"{split} had another content of {', '.join(changed)}"
    for split in SPLITS:
        form, other = (one.get("forms", {}).get(split) for one in (old, new))
        if form != other:
            yield f"{split} was {_shown(form)} and is {_shown(other)}"


def stale_fields(section: PrepareSection, index: DatasetIndex, *, has_parent: bool = False) -> list[str]:
    """The fields in which a section differs from the recipe of its dataset, one text each.

    Files are compared by name, since they may be gone. In a section without training text, which does not describe a
    preparation, only fields that are not at their default are compared. A run that begins from another may use a
    dataset with the other's tokenizer without naming it in the section.
    """
    of_settings = _stale_settings(section, index, has_parent=has_parent)
    return [*of_settings, *_stale_files(section, index), *_stale_scores(section, index)]


def stale_error(fields: Sequence[str], where: str, command: str) -> UserError:
    """The error for a section that does not match its dataset, of which a run would record false settings.

    Args:
        fields: from `stale_fields`.
        where: the dataset's folder.
        command: the command that prepares what the section describes.
    """
    return UserError(
        f"{'; '.join(fields)}; {where} was prepared before this was changed: run `{command}` with another "
        "prepare.output, or set what the dataset was made with, or name it in stream.datasets"
    )


def _stale_settings(section: PrepareSection, index: DatasetIndex, *, has_parent: bool) -> Iterator[str]:
    old, new, defaults = _settings_in(index.recipe), _flat(_settings_of(section)), _flat(_settings_of(PrepareSection()))
    path, was_trained = section.tokenizer.path, "tokenizer.fingerprint" not in old
    if path is not None or not was_trained:  # then the settings of training a tokenizer do not matter
        is_same = (has_parent and path is None) or _is_tokenizer_of(section, index)
        then = path if is_same else "a tokenizer of its own" if was_trained else "another existing tokenizer"
        old = {**_without_tokenizer(old), "tokenizer.path": then}
        new = {**_without_tokenizer(new), "tokenizer.path": path}
    if section.pairs_per_block is None:  # the default, which matches whatever preparation chose
        old["pairs_per_block"] = None
    for key in _different(old, new):
        is_given = not section.train.is_empty or new.get(key) != defaults.get(key)
        if key not in MAY_DIFFER and not key.startswith(MODELS) and is_given:
            yield f"prepare.{key}: {_shown(new.get(key))}, the dataset has {_shown(old.get(key))}"


def _stale_files(section: PrepareSection, index: DatasetIndex) -> Iterator[str]:
    for split in SPLITS:
        corpus = getattr(section, split)
        names = _once([path.name for path in corpus_paths(corpus, section.root)])
        others = _names_in(index.recipe, split)
        if section.train.is_empty and corpus.is_empty:
            continue
        if names != others:
            yield f"prepare.{split}: {', '.join(names) or 'none'}, the dataset has {', '.join(others) or 'none'}"
        elif (form := _form(corpus)) != (other_form := index.recipe.get("forms", {}).get(split)):
            yield f"prepare.{split}: {_shown(form)}, the dataset has {_shown(other_form)}"


def _stale_scores(section: PrepareSection, index: DatasetIndex) -> Iterator[str]:
    """Scores that decide the dataset and are now made by something else; the content of files is not compared."""
    if section.train.is_empty:
        return
    given = made_by(section, ())
    for name, made in index.recipe.get("scores", {}).items():
        if (now := _maker(given.get(name, {}))) != (was := _maker(made)):
            yield f"prepare.scores.{name}: {_shown(now)}, the dataset has {_shown(was)}"


def _maker(made: Mapping[str, Any]) -> Any:
    """What makes a score, without contents."""
    return made.get("command") or made.get("field")


def _is_tokenizer_of(section: PrepareSection, index: DatasetIndex) -> bool:
    """Whether the dataset may have the tokenizer that the section names or trains."""
    given, recorded = section.tokenizer, index.tokenizer
    if given.path is None:  # the dataset took its tokenizer from another dataset made by such a section
        sizes = given.vocab_size, given.target_vocab_size or given.vocab_size
        return sizes == (recorded.source_vocab_size, recorded.target_vocab_size)
    try:
        tokenizer = existing_tokenizer(given)
    except UserError:  # it is gone, which is not a change of the section
        return "tokenizer.fingerprint" in _settings_in(index.recipe)
    return tokenizer is not None and tokenizer.fingerprint == recorded.fingerprint


def _settings_of(section: PrepareSection) -> dict[str, Any]:
    section = as_saved(section)
    filters = [
        {name: value for name, value in dataclasses.asdict(filter_).items() if name not in filter_.decides_nothing}
        for filter_ in section.filters
    ]
    tree: dict[str, Any] = json.loads(json.dumps({**dataclasses.asdict(section), "filters": filters}))
    origins = {label(type(filter_)): origin_of(type(filter_)) for filter_ in section.filters}
    tree["plugins"] = {name: origin.sha256 for name, origin in origins.items() if origin is not None and origin.sha256}
    tree["cleaning"]["language_model"] = Path(section.cleaning.language_model).name
    return {key: value for key, value in tree.items() if key not in NOT_IN_RECIPE}


def _models(section: PrepareSection) -> Iterator[tuple[str, str]]:
    """Names and hashes of the models that identify languages, where they are files."""
    filters = filters_of(section).values()
    models = {one.model for one in filters if isinstance(one, LanguageIdentification)} - {PY3LANGID}
    paths = sorted(map(Path, models))
    yield from ((path.name, hash_file(path)) for path in paths if path.is_file())


def _settings_in(recipe: Mapping[str, Any]) -> Settings:
    tree = recipe.get("settings")
    return _flat(tree) if isinstance(tree, dict) else {}


def _without_tokenizer(settings: Settings) -> Settings:
    return {key: value for key, value in settings.items() if not key.startswith("tokenizer.")}


def _different(old: Settings, new: Settings) -> list[str]:
    return [key for key in {**new, **old} if not _is_same(key, old.get(key), new.get(key))]


def _is_same(key: str, old: Any, new: Any) -> bool:
    """Whether two settings are equivalent; a language may be named by any of its codes."""
    is_language = key in ("source_language", "target_language")
    return old == new or (is_language and same_language(old, [new]) == [new] and same_language(new, [old]) == [old])


def _flat(tree: Mapping[str, Any], where: str = "") -> Settings:
    flat: Settings = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{where}{key}.") if isinstance(value, dict) else {f"{where}{key}": value}
    return flat


def _form(corpus: CorpusFiles) -> dict[str, Any] | None:
    """The format of a corpus's files; None if there are none."""
    if corpus.form is None:
        return None
    form: dict[str, Any] = {"form": corpus.form, "fields": [corpus.source_field, corpus.target_field]}
    others = {name: getattr(corpus, name) for name in ("header", "inline_markup")}
    return form | {name: value for name, value in others.items() if value != getattr(CorpusFiles(), name)}


def _names_in(recipe: Mapping[str, Any], split: str) -> list[str]:
    """Names of a corpus's files; of a folder its own name, as in `Input.name`, not those of its files."""
    files = [entry for entry in recipe.get("inputs", []) if entry.get("split") == split]
    return _once([str(entry["file"]).partition("/")[0] for entry in files])


def _once(names: Sequence[str]) -> list[str]:
    """Without consecutive repeated names."""
    return [name for number, name in enumerate(names) if number == 0 or name != names[number - 1]]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
