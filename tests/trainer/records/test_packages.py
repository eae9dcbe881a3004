"""Trackers of other packages, the real ones: what is read back of each is what metrics.jsonl holds."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from configs.components import make
from tests.small import small_runs
from trainer.records import metrics
from trainer.records.metrics import Metrics
from trainer.records.names import by_tag, event_by_tag

SAMPLES = [("<b> & |", "x", "y"), ("\n", "", "\u2028")]

Points = dict[tuple[str, int], float]
"""Values by tag and update."""


def written(folder: Path, tracker: Any) -> Points:
    """Have a tracker write what a real run has written, as two starts; what it has of the second, by its names."""
    lines = [json.loads(line) for line in (small_runs() / "runs" / "small" / "metrics.jsonl").read_text().splitlines()]
    folder.mkdir(parents=True, exist_ok=True)
    config = {"name": "small", "optimizer": {"kind": "adamw", "lr": 1e-3}, "trackers": [], "long": "x" * 2000}
    points: Points = {}
    for resume_step in (0, 5):
        run = Metrics(folder, resume_step=resume_step, trackers=[tracker], config=config)
        for figures in ({**line} for line in lines if line["step"] > resume_step):
            step, kind = figures.pop("step"), figures.pop("kind")
            if kind == "evaluation":
                run.evaluation(step, figures, SAMPLES)
            else:
                getattr(run, kind)(step, figures)
            tags = (
                event_by_tag(figures) if kind == "event" else by_tag("train" if kind == "train" else "valid", figures)
            )
            points |= {(tag, step): value for tag, value in tags.items() if step > 5}
        run.close("finished" if resume_step else "stopped")
    return points


def check(points: Points, expected: Points) -> None:
    assert len(expected) > 20
    assert points.keys() == expected.keys()
    for key, value in expected.items():
        assert math.isclose(points[key], value, rel_tol=1e-9), key


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read back is compared, and not how fast a busy machine writes it."""
    monkeypatch.setattr(metrics, "CLOSE_SECONDS", 200.0)


@pytest.mark.usefixtures("patient")
def test_weights_and_biases_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no file can be written to the home folder: everything lies in the run's."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("HOME", "/sys/kernel/none")
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    expected = written(tmp_path / "run", make("tracker", "wandb", mode="offline"))
    starts = [path.read_bytes() for path in (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")]
    assert len(starts) == 2, "points cannot be taken back: a start is a run of its own"
    [second] = [data for data in starts if b"run from 5" in data]
    assert [tag for tag, _ in expected if tag.encode() not in second] == []
    pages = [path.read_text() for path in (tmp_path / "run" / "wandb").rglob("translations_*.html")]
    assert pages
    assert all("<td>&lt;b&gt; &amp; |</td>" in page for page in pages)


@pytest.mark.usefixtures("patient")
def test_mlflow_in_its_local_store(tmp_path: Path) -> None:
    """Not in the extra `dev`, for the 25 packages that it brings."""
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    from mlflow.tracking import MlflowClient

    expected = written(tmp_path / "run", make("tracker", "mlflow"))
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/run/mlflow.db")
    experiment = client.get_experiment_by_name("zeromt")
    assert experiment is not None
    by_name = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert by_name.keys() == {"run", "run from 5"}
    assert list((tmp_path / "run" / "mlflow").rglob("step-*.html")), "files lie in the run's folder too"
    run = by_name["run from 5"]
    assert {name: run.info.status for name, run in by_name.items()} == {"run": "KILLED", "run from 5": "FINISHED"}
    assert run.data.params["optimizer.lr"] == "0.001"
    histories = {tag: client.get_metric_history(run.info.run_id, tag) for tag in run.data.metrics}
    check({(tag, m.step): m.value for tag, history in histories.items() for m in history}, expected)


def test_prometheus(tmp_path: Path) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    name = 'a "run" \\ of mine'
    expected = written(tmp_path / name, make("tracker", "prometheus"))
    text = (tmp_path / name / "metrics.prom").read_text()
    samples = [sample for family in parser.text_string_to_metric_families(text) for sample in family.samples]
    assert {sample.labels["run"] for sample in samples} == {name}
    values = {(sample.name, sample.labels["part"]): sample.value for sample in samples}
    assert values.keys() >= {("zeromt_train_step", ""), ("zeromt_events_exit_code", "")}
    newest = {tag: value for (tag, _), value in sorted(expected.items(), key=lambda item: item[0][1])}
    for tag, value in newest.items():
        group, key, *part = tag.split("/", 2)
        assert math.isclose(values[f"zeromt_{group}_{key}", "".join(part)], value, rel_tol=1e-12)


def test_prometheus_replaces_regular_files_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.prom")
    with pytest.raises(OSError, match="is not a regular file"):
        make("tracker", "prometheus", file=str(tmp_path / "pipe.prom")).open(tmp_path, config={}, resume_step=0)
    assert (tmp_path / "pipe.prom").is_fifo()
