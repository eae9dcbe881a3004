"""The event files of a run that was killed and rewound before it was finished show each step once."""

import shutil
from pathlib import Path

from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

from tests.conftest import read_metrics
from tests.forked import Forked
from tests.small import small_runs

LAST = 40
KILLER = '''
"""A tracker that ends its process without a word, once, at a step."""

import os
import signal

from configs.components import Tracker, component


class Killing:
    def __init__(self, file, step):
        self.file, self.step = file, step

    def write(self, step, figures, samples=()):
        if step == self.step and "train/loss" in figures and not self.file.exists():
            self.file.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def event(self, step, figures):
        pass

    def close(self):
        pass


@component("tracker", "killer")
class Killer(Tracker):
    """Kills at a step."""

    step: int

    def open(self, folder, *, config, resume_step):
        return Killing(folder / "killed", self.step)
'''


def test_after_kills_and_rewinds(tmp_path: Path, forked: Forked) -> None:
    place = Path(shutil.copytree(small_runs(), tmp_path / "place"))
    (place / "killer.py").write_text(KILLER)
    common = [
        "--plugins",
        "killer.py",
        f"training.max_updates={LAST}",
        "checkpoint.every_updates=4",
    ]
    killer = "trackers=[{kind: killer, step: 19}]"
    spikes = ["stability.spike_score=0.1", "stability.spike_window=16", "optimizer.lr=1e-7"]  # losses that do not fall
    starts = [[killer, "evaluation.every_updates=3"], [killer, *spikes], [killer]]
    said = []
    for more in starts:
        said.append(forked.zeromt("train", "small.yaml", *common, *more, cwd=place))
    assert said[0].code != 0
    run = place / "runs" / "small"
    assert (run / "killed").exists()
    assert "rewinding, to skip" in said[1].out
    assert said[2].code == 0, said[2].err
    board = EventAccumulator(str(run), tensor_size_guidance={"scalars": 0, "text": 0, "images": 0})
    board.Reload()
    for tag in board.Tags()["tensors"]:
        steps = [event.step for event in board.Tensors(tag)]
        assert steps == sorted(steps if tag.startswith("events/") else set(steps)), tag  # several may happen at one
    for group, kind in (("train", "train"), ("valid", "evaluation")):
        lines = {line["step"]: line["loss"] for line in read_metrics(run, kind)}
        shown = {event.step: event.tensor_proto.float_val[0] for event in board.Tensors(f"{group}/loss")}
        assert shown.keys() == lines.keys()
        assert all(abs(shown[step] - loss) < 1e-5 * abs(loss) for step, loss in lines.items())
    assert max(lines) == LAST
