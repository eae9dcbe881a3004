"""The types of what a manifest and a state hold: a stranger's may hold anything."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from trainer.checkpoint.state import TrainerState

_MANIFEST: dict[str, type] = {"step": int, "versions": dict, "fingerprints": dict}
"""Entries of every checkpoint's manifest."""
_OF_SOME: dict[str, type] = {"world_size": int, "zero_stage": int, "precision": str}
_NUMBERS = {f.name: f.type for f in fields(TrainerState) if f.type in (int, float)}
_SHOWN = ("step", "target_tokens", "seconds")


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """Check the values that commands take apart.

    Raises:
        ValueError: one is of another type; the message names it.
    """
    for name, wanted in (_MANIFEST | {n: t for n, t in _OF_SOME.items() if n in manifest}).items():
        _check(name, manifest.get(name), wanted)
    fingerprints = manifest["fingerprints"]
    _check("fingerprints.tokenizer", fingerprints.get("tokenizer"), str)
    _check("fingerprints.data", fingerprints.get("data"), list)
    _check("fingerprints.plugins", fingerprints.get("plugins", {}), dict)
    for fingerprint in (*fingerprints["data"], *fingerprints.get("plugins", {}).values()):
        _check("fingerprints", fingerprint, str)


def check_state(tree: Any) -> None:
    """Check what commands show of a checkpoint's state. Training reads all of it by `TrainerState` and `StreamState`.

    Raises:
        ValueError: a value is missing or of another type.
    """
    _check("state", tree, dict)
    _check("trainer", tree.get("trainer"), dict)
    if tree.get("stream") is not None:
        _check("stream", tree["stream"], dict)
        for name in ("epoch", "update"):
            _check(f"stream.{name}", tree["stream"].get(name), int)
    trainer = tree["trainer"]
    for name, wanted in _NUMBERS.items():
        if name in trainer or name in _SHOWN:
            _check(f"trainer.{name}", trainer.get(name), wanted)
    if trainer.get("phase") is not None:
        _check("trainer.phase", trainer["phase"], dict)
        _check("trainer.phase.name", trainer["phase"].get("name"), str)
        _check("trainer.phase.step", trainer["phase"].get("step"), int)


def _check(name: str, value: Any, wanted: type) -> None:
    types = (int, float) if wanted is float else wanted
    if not isinstance(value, types) or isinstance(value, bool) or (isinstance(value, int) and value < 0):
        raise ValueError(f"{name} is {str(value)!r:.80}; allowed is {wanted.__name__}")
