"""A text file for Prometheus, read by the node exporter's textfile collector.

The package, https://prometheus.github.io/client_python, is optional: `pip install 'zeromt[prometheus]'`.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
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
        import prometheus_client  # noqa: F401 - a tracker that is not installed is dropped here

        path = folder / FILE if self.file is None else Path(self.file).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # the file is replaced at each write, and root may replace /dev/null
            raise OSError(f"{str(path)!r} is not a regular file; name one that ends in .prom")
        return _Writer(path, folder.name)


class _Writer(Writer):
    def __init__(self, path: Path, run: str) -> None:
        self._path, self._run = path, run
        self._values: defaultdict[str, dict[str, float]] = defaultdict(dict)  # by metric and part

    @override
    def write(self, step: int, figures: Mapping[str, float], samples: Samples = ()) -> None:
        from prometheus_client import write_to_textfile

        newest = max(float(step), self._values["zeromt_train_step"].get("", 0.0))  # a score may come late
        for tag, value in {**figures, "train/step": newest}.items():
            group, key, *part = tag.split("/", 2)
            name = f"zeromt_{_OTHER.sub('_', group)}_{_OTHER.sub('_', key)}"
            self._values[name][part[0] if part else ""] = value
        write_to_textfile(str(self._path), self)  # atomic: a collector never reads half a file

    @override
    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        if figures.get("event") == END_EVENT:
            self.write(step, {"events/exit_code": float(figures["exit_code"])})

    def close(self) -> None:
        """Keep the file: it holds the final figures."""

    def collect(self) -> Iterator[Any]:
        """The latest figures, as the package asks a registry for them."""
        from prometheus_client import Metric

        for name, values in self._values.items():
            metric = Metric(name, "The latest figure of a run of zeromt.", "gauge")
            for part, value in values.items():
                metric.add_sample(name, {"run": self._run, **({"part": part} if part else {})}, value)
            yield metric
