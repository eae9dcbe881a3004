"""A text file for Prometheus, read by the node exporter's textfile collector.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.components import Samples, Tracker, Writer, component
from configs.fields import PathText
from trainer.records.names import by_tag, event_by_tag

FILE = "metrics.prom"
_OTHER = re.compile(r"[^a-zA-Z0-9_]")


@component("tracker", "prometheus")
class Prometheus(Tracker):
    """Prometheus: a file with the latest figures, for the node exporter (`--collector.textfile.directory`)."""

    file: PathText | None = None
    """Path of the file, which must end in .prom; by default `metrics.prom` in the run's folder."""

    def open(self, folder: Path, *, config: Mapping[str, Any], resume_step: int) -> Writer:
        """See Tracker."""
        path = folder / FILE if self.file is None else Path(self.file).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # the file is replaced at each write, and root may replace /dev/null
            raise OSError(f"{str(path)!r} is not a regular file; name one that ends in .prom")
        return _Writer(path, folder.name)


class _Writer:
    """See Writer."""

    def __init__(self, path: Path, run: str) -> None:
        self._path, self._run = path, run
        self._samples: dict[tuple[str, str], float] = {}

    def train(self, step: int, figures: Mapping[str, Any]) -> None:
        """See Writer."""
        self._write({"train/step": float(step), **by_tag("train", figures)})

    def evaluation(self, step: int, figures: Mapping[str, Any], samples: Samples, attentions: Sequence[Any]) -> None:
        """See Writer."""
        self._write({"valid/step": float(step), **by_tag("valid", figures)})

    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        """See Writer."""
        self._write(event_by_tag(figures))

    def close(self) -> None:
        """Keep the file: it holds the final figures."""

    def _write(self, figures: Mapping[str, float]) -> None:
        for tag, value in figures.items():
            group, key, *part = tag.split("/", 2)
            name = f"zeromt_{_OTHER.sub('_', group)}_{_OTHER.sub('_', key)}"
            labels = {"run": self._run, **({"part": part[0]} if part else {})}
            label_text = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            self._samples[name, label_text] = value
        lines = []
        for (name, label_text), value in sorted(self._samples.items()):
            head = f"# TYPE {name} gauge"
            lines += [*([] if head in lines else [head]), f"{name}{{{label_text}}} {_number(value)}"]
        beside = self._path.with_name(f"{self._path.name}.tmp")
        beside.write_text("\n".join(lines) + "\n", encoding="utf-8")
        beside.replace(self._path)  # atomic: a collector never reads half a file


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(repr(value), repr(value))
