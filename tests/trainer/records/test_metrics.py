"""metrics.jsonl and TensorBoard hold the same figures, by step."""

import errno
import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageChops
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from model.search.alignment import default_layer
from tests.conftest import read_metrics
from tests.trainer.conftest import TrainedRun
from trainer.evaluation.evaluator import PICTURED_PIECES
from trainer.inference.loading import load_trained
from trainer.inference.translation.heat_map import draw
from trainer.inference.translation.translator import Translator
from trainer.runs.metrics_file import LineFile

TAGS = {
    "train/loss": "loss",
    "train/nll": "nll",
    "train/perplexity": "perplexity",
    "train/lr": "lr",
    "train/grad_norm": "grad_norm",
    "x_machine/goodput": "goodput",
    "x_machine/tokens_per_second": "tokens_per_second",
    "x_data/padding": "padding",
}


def test_tensorboard_shows_what_metrics_hold(trained: TrainedRun) -> None:
    board = EventAccumulator(str(trained.folder), size_guidance={"tensors": 0})
    board.Reload()
    lines = read_metrics(trained.folder)
    for tag, key in TAGS.items():
        shown = {e.step: e.value for e in board.Scalars(tag)}
        assert shown.keys() == {line["step"] for line in lines}
        for line in lines:
            assert abs(shown[line["step"]] - line[key]) <= 1e-5 * max(1, abs(line[key]))
    for tag, key in (("valid/bleu", "bleu"), ("valid/chrf", "chrf")):
        scores = [e.value for e in board.Scalars(tag)]
        assert len(scores) == 2
        assert abs(scores[-1] - read_metrics(trained.folder, "evaluation")[-1][key]) < 1e-3
    for tag in ("x_machine/host_memory_gib", "x_machine/cpu_utilization", "x_machine/checkpoint_seconds"):
        assert board.Scalars(tag), tag
    tags = board.Tags()["scalars"]
    assert sorted({tag.partition("/")[0] for tag in tags})[:2] == ["train", "valid"], "TensorBoard opens these"
    never = [tag for tag in tags if not tag.startswith("valid/") and not any(e.value for e in board.Scalars(tag))]
    assert never == [], "what never happened has no curve"
    assert "x_events/rewinds" not in tags
    [first, last] = read_metrics(trained.folder, "evaluation")
    assert 0.5 < first["accuracy"] <= last["accuracy"] <= 1, f"it learns: {first}, {last}"
    assert [e.value for e in board.Scalars("valid/accuracy")][-1] == pytest.approx(last["accuracy"])
    assert [e.step for e in board.Scalars("x_tokens/valid/bleu")] == [
        first["total_target_tokens"],
        last["total_target_tokens"],
    ]
    training = sum(line["seconds_per_update"] * line["updates"] for line in lines)
    assert sum(line["writing_seconds"] for line in lines) < 0.01 * training, "what the loop spends on all writers"
    texts = board.Tensors("valid/translations/text_summary")
    assert [t.step for t in texts] == [150, 300]
    assert b"<th>source</th><th>reference</th><th>translation</th>" in texts[-1].tensor_proto.string_val[0]


def test_tensorboard_shows_attention(trained: TrainedRun) -> None:
    """The pictures are those that `zeromt translate --attention` draws, of the same pairs at every step."""
    board = EventAccumulator(str(trained.folder), size_guidance={"images": 0})
    board.Reload()
    of = [f"valid/attention_{number}/{text}" for number in (1, 2) for text in ("reference", "translation")]
    assert sorted(board.Tags()["images"]) == of
    first, last = board.Images("valid/attention_1/reference")
    assert (first.step, last.step) == (150, 300)
    assert (first.width, first.height) == (last.width, last.height)
    assert first.encoded_image_string != last.encoded_image_string

    loaded = load_trained(trained.folder)
    lines, references = (path.read_text().splitlines() for path in (trained.source, trained.reference))
    short = [
        (line, ids)
        for line, ids in zip(lines, loaded.tokenizer.encode_target(references), strict=True)
        if max(len(ids), *map(len, loaded.tokenizer.encode_source([line]))) <= PICTURED_PIECES
    ]
    translator = Translator(loaded.model, loaded.tokenizer, loaded.config.evaluation.search, loaded.device)
    for number, (line, ids) in enumerate(short[:2], start=1):
        [attention] = translator.cross_attention([line], [ids])
        expected = draw([attention], layer=default_layer(len(attention.weights)))
        shown = Image.open(
            io.BytesIO(board.Images(f"valid/attention_{number}/reference")[-1].encoded_image_string)
        ).convert("L")
        assert shown.size == expected.size
        differences = np.asarray(ImageChops.difference(shown, expected))
        assert differences.max() <= 1, "but for rounding"


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
    later = "it is written once that is possible; training goes on"
    said = [f"{full}{later}", f"{full}{later}", f"{full}its last lines are lost"]
    assert [record.getMessage() for record in caplog.records] == said
