"""What identifies the model of a checkpoint, and the software that made it."""

import contextlib
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from configs.process.files.inside import read_json, read_text
from configs.process.text import digest
from trainer.runs.layout import CONFIG, MANIFEST

PACKAGES = ("torch", "deepspeed", "webdataset", "sentencepiece", "sacrebleu", "safetensors")
"""Those that have a part in the result, as every checkpoint notes them."""
_PARTS = ("model-", "ema-", "tokenizer")
"""Beginnings of the names of files of weights and of the vocabulary."""


def model_identity(checkpoint: Path) -> dict[str, Any]:
    """The step of a checkpoint, and a hash of its weights, vocabulary and section `model`.

    The trainer's state, its moments and the rest of the configuration do not count: they have times and paths, so they
    differ where a run was killed and resumed, or was moved.
    """
    manifest = read_json(checkpoint / MANIFEST)
    files = {name: one["sha256"] for name, one in manifest["files"].items() if name.startswith(_PARTS)}
    model = yaml.safe_load(read_text(checkpoint / CONFIG)).get("model")
    return {"step": manifest.get("step"), "sha256": digest([files, model])}


def versions(packages: Sequence[str] = PACKAGES) -> Mapping[str, str]:
    """The versions of packages."""
    found = dict.fromkeys(packages, "unknown")
    for name in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
