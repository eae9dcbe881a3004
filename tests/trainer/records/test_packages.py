"""Trackers of other packages, the real ones: what is read back of each is what metrics.jsonl holds."""

import functools
import json
import math
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from configs.components import make
from tests.conftest import environment, read_metrics
from tests.forked import Forked
from tests.small import small_runs
from trainer.records import metrics
from trainer.records.background import join_all
from trainer.records.metrics import RunMetrics
from trainer.records.names import by_tag, event_by_tag
from trainer.trackers.mlflow import _Writer as mlflow_writer

SAMPLES = [("<b> & |", "x", "y"), ("\n", "", "\u2028")]

Points = dict[tuple[str, int], float]
"""Values by tag and update."""


def written(folder: Path, tracker: Any) -> Points:
    """Have a tracker write what a real run has written, as two starts; what metrics.jsonl then holds of the second."""
    lines = [json.loads(line) for line in (small_runs() / "runs" / "small" / "metrics.jsonl").read_text().splitlines()]
    folder.mkdir(parents=True, exist_ok=True)
    config = {"name": "small", "optimizer": {"kind": "adamw", "lr": 1e-3}, "trackers": [], "long": "x" * 2000}
    for resume_step, half in ((0, lines), (5, lines)):
        run = RunMetrics(folder, resume_step=resume_step, trackers=[tracker], config=config)
        for line in half:
            step, kind = line["step"], line["kind"]
            figures = {key: value for key, value in line.items() if key not in ("step", "kind")}
            if step <= resume_step:
                continue
            if kind == "evaluation":
                run.evaluation(step, figures, SAMPLES, [])
            else:
                getattr(run, kind)(step, figures)
        run.close("finished" if resume_step else "stopped")
    return {
        (tag, line["step"]): value
        for line in (json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines())
        for tag, value in tags_of(line).items()
        if line["step"] > 5
    }


def tags_of(line: dict[str, Any]) -> dict[str, float]:
    """What a line of metrics.jsonl is in a tracker."""
    figures = {key: value for key, value in line.items() if key not in ("step", "kind")}
    if line["kind"] == "event":
        return event_by_tag(figures)
    return by_tag("train" if line["kind"] == "train" else "valid", figures)


def check(found: Points, expected: Points) -> None:
    assert len(expected) > 20
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert math.isclose(found[key], value, rel_tol=1e-9), key


def records(data: bytes) -> Iterator[bytes]:
    """Of a file of wandb: LevelDB's log format behind 7 bytes."""
    place, whole = 7, b""
    while place + 7 <= len(data):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        length, kind = struct.unpack_from("<HB", data, place + 4)
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield whole
            whole = b""


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read back is compared, and not how fast a busy machine writes it."""
    monkeypatch.setattr(metrics, "join_all", functools.partial(join_all, seconds=200))


@pytest.mark.usefixtures("patient")
def test_weights_and_biases_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no file can be written to the home folder: everything lies in the run's."""
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("HOME", "/sys/kernel/none")
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    expected = written(tmp_path / "run", make("tracker", "wandb", mode="offline"))
    starts = list((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
    found: dict[str, Points] = {}
    codes = {}
    for path in starts:
        name = ""
        points: Points = {}
        for data in records(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            name = record.run.display_name or name
            if record.HasField("exit"):
                codes[name] = record.exit.exit_code
            row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            points |= {
                (k, row["update"]): v
                for k, v in row.items()
                if k.count("/") and isinstance(v, int | float) and not k.startswith("valid/translations/")
            }
        found[name] = points
    assert found.keys() == {"run", "run from 5"}, "points cannot be taken back: a start is a run of its own"
    assert codes == {"run": 75, "run from 5": 0}
    check(found["run from 5"], expected)
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
    assert list((tmp_path / "run" / "mlflow").rglob("step-*.json")), "files lie in the run's folder too"
    run = by_name["run from 5"]
    assert {name: run.info.status for name, run in by_name.items()} == {"run": "KILLED", "run from 5": "FINISHED"}
    assert run.data.params["optimizer.lr"] == "0.001"
    histories = {tag: client.get_metric_history(run.info.run_id, tag) for tag in run.data.metrics}
    check({(tag, m.step): m.value for tag, history in histories.items() for m in history}, expected)


@pytest.mark.parametrize(
    ("outcome", "status"),
    [("finished", "FINISHED"), ("stopped", "KILLED"), ("failed", "FAILED"), ("refused", "FAILED")],
)
def test_mlflow_is_told_how_the_run_ended(outcome: str, status: str) -> None:
    class Client:
        def set_terminated(self, run: str, *, status: str) -> None:
            told.append((run, status))

    told: list[tuple[str, str]] = []
    writer = mlflow_writer(Client(), "a")
    writer.event(3, {"event": "end", "outcome": outcome, "exit_code": 0, "reason": None})
    writer.close()
    assert told == [("a", status)]


def test_prometheus(tmp_path: Path) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    name = 'a "run" \\ of mine'
    expected = written(tmp_path / name, make("tracker", "prometheus"))
    text = (tmp_path / name / "metrics.prom").read_text()
    found = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels["run"] == name
            found[sample.name, sample.labels.get("part")] = sample.value
    newest: dict[str, float] = {}
    for (tag, _), value in sorted(expected.items(), key=lambda item: item[0][1]):
        newest[tag] = value
    for tag, value in newest.items():
        group, key, *part = tag.split("/", 2)
        assert math.isclose(found[f"zeromt_{group}_{key}", part[0] if part else None], value, rel_tol=1e-12)
    assert {name for name, _ in found} - {f"zeromt_{'_'.join(t.split('/', 2)[:2])}" for t in newest} == {
        "zeromt_train_step", "zeromt_valid_step", "zeromt_events_exit_code",
    }  # fmt: skip


def test_prometheus_replaces_regular_files_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.prom")
    with pytest.raises(OSError, match="is not a regular file"):
        make("tracker", "prometheus", file=str(tmp_path / "pipe.prom")).open(tmp_path, config={}, resume_step=0)
    assert (tmp_path / "pipe.prom").is_fifo()


FAILING = [
    "{kind: wandb, mode: online}",
    "{kind: mlflow, uri: 'http://127.0.0.1:9'}",
    "{kind: prometheus, file: /sys/kernel/no/metrics.prom}",
]
"""No key and no network; nobody listens; an unwritable folder."""


SETTINGS = ["evaluation.every_updates=2", "training.log_every=1"]


def assert_same_updates(alone: Path, other: Path) -> None:
    keys = ("step", "loss", "pairs_digest")
    lines = [[[line[key] for key in keys] for line in read_metrics(run)] for run in (alone, other)]
    assert lines[0] == lines[1]


def test_trackers_that_fail_change_no_update(forked: Forked, tmp_path: Path) -> None:
    variables = {
        **environment(),
        "WANDB_API_KEY": "",
        "WANDB_BASE_URL": "http://127.0.0.1:9",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        "HOME": str(tmp_path),
        "NETRC": str(tmp_path / "none"),
    }
    failing = [*FAILING, "{kind: prometheus, file: /sys/kernel/zeromt.prom}"]
    settings = ["training.max_updates=14", "training.tensorboard=false", *SETTINGS]
    runs = []
    for number, trackers in enumerate(("[]", f"[{', '.join(failing)}]")):
        place = Path(shutil.copytree(small_runs(), tmp_path / str(number)))
        command = ("train", "small.yaml", f"trackers={trackers}", *settings)
        done = forked.zeromt(*command, cwd=place, surroundings=variables)
        assert done.code == 0, done.err
        runs.append((place / "runs" / "small", done.out))
    (alone, _), (with_failing, out) = runs
    for name in ("WeightsAndBiases", "MLflow", "Prometheus"):
        assert f"{name} cannot be opened and is dropped; training goes on" in out, out
    assert "Prometheus 3 failed and is dropped; training goes on: [Errno " in out, out
    assert_same_updates(alone, with_failing)
