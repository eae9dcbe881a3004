"""Trackers: one in a file outside the repository gets every figure of a run; none can end or change one."""

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from configs.components import Tracker
from tests.conftest import install_plugin, read_metrics
from tests.forked import Forked
from tests.small import small_runs
from trainer.records.metrics import Metrics

THEIRS = '''
import json

from configs.components import Tracker, component


class Lines:
    def __init__(self, path):
        self.file = path.open("a")

    def _say(self, *what):
        self.file.write(json.dumps(what) + "\\n")

    def train(self, step, figures):
        self._say("train", step, figures["loss"])

    def evaluation(self, step, figures, samples, attentions):
        self._say("evaluation", step, figures["bleu"], len(samples))

    def event(self, step, figures):
        self._say("event", step, figures["event"])

    def close(self):
        self._say("close")
        self.file.close()


@component("tracker", "lines")
class LinesTracker(Tracker):
    """Lines of JSON in a file."""

    file: str

    def open(self, folder, *, config, resume_step):
        writer = Lines(folder / self.file)
        writer._say("open", resume_step, config["name"])
        return writer


@component("tracker", "broken")
class Broken(Tracker):
    """Raises at once."""

    def open(self, folder, *, config, resume_step):
        raise RuntimeError("no network")
'''


def test_one_in_a_file_outside_gets_every_figure(forked: Forked, tmp_path: Path) -> None:
    place = Path(shutil.copytree(small_runs(), tmp_path / "place"))
    variables = install_plugin(tmp_path, "trackers", THEIRS)
    settings = ["training.max_updates=12", "evaluation.every_updates=2"]
    trackers = "trackers=[{kind: lines, file: figures.txt}, broken]"
    done = forked.zeromt("train", "small.yaml", trackers, *settings, cwd=place, surroundings=variables)
    assert done.code == 0, done.err
    assert "Broken failed and is dropped; training goes on: RuntimeError: no network" in done.out
    run = place / "runs" / "small"
    found = [json.loads(line) for line in (run / "figures.txt").read_text().splitlines()]
    assert found[0] == ["open", 10, "small"]
    assert found[-1] == ["close"]
    assert [line for line in found if line[0] == "train"] == [
        ["train", line["step"], line["loss"]] for line in read_metrics(run) if line["step"] > 10
    ]
    assert [line[:2] for line in found if line[0] == "evaluation"] == [["evaluation", 12]]
    assert ["event", 12, "checkpoint"] in found
    assert list(run.glob("events.out.tfevents.*")), "TensorBoard is written beside"


@pytest.mark.parametrize("method", ["train", "event", "close"])
def test_one_that_raises_is_given_up_once(method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = MagicMock()
    getattr(writer, method).side_effect = ValueError(method)

    class Failing(Tracker):
        def open(self, folder: Path, *, config: Mapping[str, Any], resume_step: int) -> Any:
            return writer

    metrics = Metrics(tmp_path, resume_step=0, trackers=[Failing(kind="failing")])
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            getattr(metrics, "event" if method == "close" else method)(1, {"loss": 1.0})
        metrics.close()
    expected = ["event"] * 3 if method == "close" else [method]
    assert [name for name, *_ in writer.method_calls] == [*expected, "close"], "it is closed, whatever it did"
    assert caplog.messages == [f"Failing failed and is dropped; training goes on: ValueError: {method}"]
