"""metrics.jsonl and TensorBoard hold the same figures, by step."""

import errno
import os
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.conftest import read_metrics
from tests.trainer.conftest import TrainedRun
from trainer.runs.metrics_file import LineFile

TAGS = {
    "train": {
        "train/loss": "loss",
        "train/perplexity": "perplexity",
        "train/lr": "lr",
        "train/padding": "padding",
        "x_machine/goodput": "goodput",
        "x_machine/tokens_per_second": "tokens_per_second",
        "x_machine/host_memory_gib": "host_memory_gib",
        "x_events/rewinds": "rewinds",
    },
    "evaluation": {"valid/bleu": "bleu", "valid/chrf": "chrf"},
}


def test_tensorboard_shows_what_metrics_hold(trained: TrainedRun) -> None:
    board = EventAccumulator(str(trained.folder), size_guidance={"scalars": 0, "tensors": 0})
    board.Reload()
    for kind, tags in TAGS.items():
        lines = read_metrics(trained.folder, kind)
        for tag, key in tags.items():
            shown = {e.step: e.value for e in board.Scalars(tag)}
            assert shown == pytest.approx({line["step"]: line[key] for line in lines}, rel=1e-5)
    assert board.Scalars("x_machine/checkpoint_seconds")
    texts = board.Tensors("valid/translations/text_summary")
    assert [text.step for text in texts] == [150, 300]
    assert b"<td>source</td><td>reference</td>" in texts[-1].tensor_proto.string_val[0]


def test_lines_wait_for_room_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """None is torn, and nothing is left for Python to write, and to fail at, when the process ends."""
    path, room, write = tmp_path / "lines.jsonl", [3], os.write

    def write_some(file: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        num = write(file, data[: room[0]])
        room[0] -= num
        return num

    monkeypatch.setattr(os, "write", write_some)
    lines = LineFile(path)
    lines.write("first")
    assert path.read_text() == "fir"
    room[0] = 20
    lines.write("second")
    assert path.read_text() == "first\nsecond\n"
    room[0] = 0
    lines.write("third")
    lines.close()
    full = f"{path}: No space left on device; free some space, or give another place; "
    later = "it is written once that is possible; training continues"
    assert caplog.messages == [f"{full}{later}", f"{full}{later}", f"{full}its last lines are lost"]
