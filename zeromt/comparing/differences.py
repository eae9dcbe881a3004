"""Differences between the configurations of runs and between their data."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from configs import RunConfig, UserError
from data_pipeline.prepared.dataset import open_index
from zeromt.comparing.subjects import Subject

ELSEWHERE = ("name", "output")
"""Fields that only say where a run is."""
Rows = dict[str, list[str]]
"""For each field's path, its value in each run."""


def configured(subjects: Sequence[Subject]) -> Rows:
    """The fields whose values differ between runs; for a single run, those that differ from the default."""
    trees = [dict(_flat(dataclasses.asdict(subject.config), "")) for subject in subjects]
    shown = trees if len(trees) > 1 else [dict(_flat(dataclasses.asdict(RunConfig()), "")), *trees]
    keys = [key for key in dict.fromkeys(key for tree in shown for key in tree) if key.split(".")[0] not in ELSEWHERE]
    differing = [key for key in keys if len({repr(tree.get(key)) for tree in shown}) > 1]
    return {key: [_said(tree[key]) if key in tree else "-" for tree in trees] for key in differing}


def data(subjects: Sequence[Subject]) -> Rows:
    """Data, tokenizer and versions as the runs' checkpoints and those dataset indices that are at hand give them.

    If runs are compared, only what differs between them.
    """
    columns = [_of_data(subject) for subject in subjects]
    keys = dict.fromkeys(key for column in columns for key in column)
    rows = {key: [column.get(key, "-") for column in columns] for key in keys}
    return rows if len(subjects) == 1 else {key: row for key, row in rows.items() if len(set(row)) > 1}


def _of_data(subject: Subject) -> dict[str, str]:
    fields: dict[str, str] = {}
    if subject.checkpoint is not None:
        manifest = subject.checkpoint.manifest
        fingerprints = manifest["fingerprints"]
        fields["tokenizer"] = str(fingerprints["tokenizer"])[:12]
        fields |= {f"data {n}": str(one)[:12] for n, one in enumerate(fingerprints["data"], start=1)}
        fields |= {f"plugin {name}": str(one)[:12] for name, one in fingerprints.get("plugins", {}).items()}
        fields |= {f"version of {name}": str(version) for name, version in manifest["versions"].items()}
    for number, source in enumerate(subject.config.datasets, start=1):
        if "://" in source.path:  # its index is not fetched for this
            continue
        try:
            _, index, fingerprint = open_index(source.path)
        except (UserError, OSError):
            continue
        name = f"data {number}"
        if subject.checkpoint is not None and fields.get(name) != fingerprint[:12]:
            continue  # the dataset was prepared again since
        fields |= {
            f"{name} languages": f"{index.source_language}-{index.target_language}",
            f"{name} pairs": f"{index.pairs:,}",
            f"{name} source pieces": f"{index.source_tokens:,}",
            f"{name} target pieces": f"{index.target_tokens:,}",
            f"{name} vocabulary": f"{index.tokenizer.source_vocab_size:,}, {index.tokenizer.target_vocab_size:,}",
            **{f"{name} dropped, {why}": f"{count:,}" for why, count in index.dropped.items()},
            **{f"{name} {split} pairs": f"{one.lines:,}" for split, one in index.held_out.items()},
        }
    return fields


def _flat(tree: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    """The leaves of a tree by their paths; a list without trees in it is a leaf."""
    for key, value in tree.items():
        path = f"{where}.{key}" if where else str(key)
        if isinstance(value, dict):
            yield from _flat(value, path)
        elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
            for number, one in enumerate(value):
                yield from _flat(one if isinstance(one, dict) else {"": one}, f"{path}[{number}]")
        else:
            yield path, value


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(map(_said, value)) or "none"
    return "none" if value is None else str(value)
