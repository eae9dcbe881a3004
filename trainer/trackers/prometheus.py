"""A text file for Prometheus, read by the node exporter's textfile collector.

The package, https://prometheus.github.io/client_python, is optional: `pip install 'zeromt[prometheus]'`.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typing_extensions import override

from configs.components import Samples, Tracker, Writer, component
from configs.fields import PathText
from trainer.records.names import END_EVENT

FILE = "metrics.prom"
_OTHER = re.compile(r"[^a-zA-Z0-9_]")


@component("tracker", "prometheus")
class Prometheus(Tracker):
    """Prometheus: a file with the latest figures, for the node exporter (`--collector.textfile.directory`)."""

    file: PathText | None = None
    """Path of the file, which must end in .prom; by default `metrics.prom` in the run's folder."""

    @override
    def open(self, folder: Path, *, config: Mapping[str, Any], resume_step: int) -> Writer:
        path = folder / FILE if self.file is None else Path(self.file).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # the file is replaced at each write, and root may replace /dev/null
            raise OSError(f"{str(path)!r} is not a regular file; name one that ends in .prom")
        return _Writer(path, folder.name)


class _Writer(Writer):
    def __init__(self, path: Path, run: str) -> None:
        from prometheus_client import CollectorRegistry

        self._path, self._run, self._step = path, run, 0
        self._registry = CollectorRegistry()
        self._gauges: dict[str, Any] = {}

    @override
    def write(self, step: int, figures: Mapping[str, float], samples: Samples = ()) -> None:
        from prometheus_client import Gauge, write_to_textfile

        self._step = max(self._step, step)  # a score may come late
        for tag, value in {**figures, "train/step": self._step}.items():
            group, key, *part = tag.split("/", 2)
            name = f"zeromt_{_OTHER.sub('_', group)}_{_OTHER.sub('_', key)}"
            if name not in self._gauges:
                said = "The latest figure of a run of zeromt."
                self._gauges[name] = Gauge(name, said, ["run", "part"], registry=self._registry)
            self._gauges[name].labels(self._run, "".join(part)).set(value)
        write_to_textfile(str(self._path), self._registry)  # atomic: a collector never reads half a file

    @override
    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        if figures.get("event") == END_EVENT:
            self.write(step, {"events/exit_code": float(figures["exit_code"])})

    def close(self) -> None:
        """Keep the file: it holds the final figures."""
