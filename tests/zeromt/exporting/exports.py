"""An export as a test wants it."""

from pathlib import Path
from typing import Any

from zeromt.exporting import command


def export_as(format: str, run: Path, output: Path, **changes: Any) -> None:
    """Export a run; options that are not given have their defaults."""
    names = ("quantization", "source", "reference")
    options: dict[str, Any] = {**dict.fromkeys(names), "replace": False, "raw_weights": False}
    assert command.run(run=str(run), format=format, output=str(output), **{**options, **changes}) == 0
