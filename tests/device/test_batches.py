"""What goes to the device for a micro-batch and comes back for an update."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from model.layout import Layout, LayoutKind
from tests.device.pseudo import DEVICE, metered
from tests.model.kernels.cuda.batches import lane
from trainer import lookahead
from trainer.engines.batches import DeviceBatch, HostCopy, Update


def tensors(batch: DeviceBatch) -> list[Any]:
    parts = [batch.source, batch.target_input, batch.target_output]
    if isinstance(batch.layout, Layout):
        for side in (batch.layout.source, batch.layout.target):
            parts += [side.places, torch.tensor(side.longest), *([] if side.bounds is None else [side.bounds])]
    return [part.tolist() for part in parts]


@pytest.mark.parametrize("kind", ["none", "padded", "flash"])
def test_an_update_is_laid_out_ahead_and_sent_when_it_is_needed(
    kind: LayoutKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes = [lane(0, rows=3), None, lane(2, rows=2)]
    update = Update(epoch=1, number=2, micro_batches=lanes, seconds_step=0)
    engine: Any = SimpleNamespace(device=DEVICE, merged_lanes=2 if kind == "flash" else 1, layout_kind=kind)
    plain: Any = SimpleNamespace(**{**vars(engine), "device": torch.device("cpu")})
    expected = lookahead.Layouts(plain, 3).passes(update)
    ahead = lookahead.Layouts(engine, 3)
    ahead.begin(dataclasses.replace(update, micro_batches=[lanes[2]]))  # which is left out
    ahead.begin(update)
    ahead._thread.begin(lambda: None)()  # type: ignore[union-attr]  # behind them
    ahead.close()
    monkeypatch.setattr(lookahead, "lay_out", None)
    passes = ahead.passes(update)
    with metered() as meter:
        sent = [one.send() for one in passes]
    assert meter.kernels_by("operator")["copy_"] == sum(one.lanes != () for one in passes), "one copy each"
    assert not meter.uploads
    assert not meter.waits
    assert [(one.lanes, one.seed) for one in passes] == [(one.lanes, one.seed) for one in expected]
    assert [tensors(batch) for batch in sent] == [tensors(one.send()) for one in expected]


def test_losses_come_back_without_a_wait_once_there_is_more_to_do() -> None:
    there = torch.tensor([[1.5, 2.5], [float("nan"), 0.0]], device=DEVICE)
    with metered() as meter:
        copy = HostCopy(there)
        there.clone()
        read = copy.read()
    assert not meter.waits
    assert meter.queued == [1]
    assert read.device.type == "cpu"
    torch.testing.assert_close(read, torch.tensor([[1.5, 2.5], [float("nan"), 0.0]]), equal_nan=True)
    with metered() as meter:
        HostCopy(there).read()
    assert meter.waits.total() == 1, "one that is read too early drains the device"
    assert HostCopy(read).read().data_ptr() == read.data_ptr(), "on a CPU it is the tensor itself"
