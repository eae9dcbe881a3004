"""MLflow: https://mlflow.org/docs. The package is optional: `pip install 'zeromt[mlflow]'`."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typing_extensions import override

from configs.components import Samples, Tracker, Writer, component
from trainer.records.names import END_EVENT, flatten, samples_table, start_name

MAX_PARAMETERS = 100
"""MLflow accepts at most this many parameters in one request."""
STATUS = {"finished": "FINISHED", "stopped": "KILLED"}
"""MLflow's status of a run by the outcome; FAILED for others."""


@component("tracker", "mlflow")
class MLflow(Tracker):
    """MLflow: each start is an MLflow run of its own, because logged points cannot be deleted (tag: `zeromt.run`)."""

    uri: str | None = None
    """URI of the tracking server or database, such as http://host:5000 or sqlite:////shared/mlflow.db; by default
    MLFLOW_TRACKING_URI, else `mlflow.db` in the run's folder."""
    experiment: str = "zeromt"
    """Name of the MLflow experiment."""

    @override
    def open(self, folder: Path, *, config: Mapping[str, Any], resume_step: int) -> Writer:
        import os

        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        uri = self.uri or os.environ.get("MLFLOW_TRACKING_URI")
        client = MlflowClient(tracking_uri=uri or f"sqlite:///{(folder / 'mlflow.db').resolve()}")
        known = client.get_experiment_by_name(self.experiment)
        if known is None:  # MLflow's default would put artifacts in the working directory
            files = None if uri else (folder / "mlflow").resolve().as_uri()
            experiment = client.create_experiment(self.experiment, artifact_location=files)
        else:
            experiment = known.experiment_id
        name = start_name(folder, resume_step)
        tags = {"zeromt.run": folder.name, "zeromt.resume_step": str(resume_step)}
        run = client.create_run(experiment, run_name=name, tags=tags).info.run_id
        parameters = [Param(_key(key), str(value)[:500]) for key, value in flatten(config).items()]
        for begin in range(0, len(parameters), MAX_PARAMETERS):
            client.log_batch(run, params=parameters[begin : begin + MAX_PARAMETERS])
        return _Writer(client, run)


class _Writer(Writer):
    def __init__(self, client: Any, run: str) -> None:
        self._client, self._run = client, run
        self._status = "KILLED"  # of one that is dropped before the end

    @override
    def write(self, step: int, figures: Mapping[str, float], samples: Samples = ()) -> None:
        from mlflow.entities import Metric

        now = round(1000 * time.time())
        self._client.log_batch(self._run, [Metric(_key(tag), value, now, step) for tag, value in figures.items()])
        if samples:
            self._client.log_text(self._run, samples_table(samples), f"translations/step-{step:08d}.html")

    @override
    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        if figures.get("event") == END_EVENT:
            self._status = STATUS.get(figures["outcome"], "FAILED")

    @override
    def close(self) -> None:
        self._client.set_terminated(self._run, status=self._status)


def _key(name: str) -> str:
    """The name with every character that MLflow does not accept replaced by an underscore."""
    return "".join(c if c.isalnum() or c in "/_-. " else "_" for c in name)
