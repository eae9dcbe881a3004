"""updates.bin: what is kept of an update, and how little of it is read to find where two runs part."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from trainer.runs.history.updates import Record, UpdateLog, UpdatesFile, first_where

MANY = 100_000


def write(run: Path, losses: Sequence[float], *, resume_step: int = 0) -> Path:
    run.mkdir(exist_ok=True)
    log = UpdateLog(run, resume_step=resume_step)
    for step, loss in enumerate(losses, start=resume_step + 1):
        log.write(step, step * 7, loss)
    log.close()
    return run


def records(run: Path) -> list[Record | None]:
    file = UpdatesFile(run)
    found = [file.record(step) for step in range(1, file.num_updates + 1)]
    file.close()
    return found


def test_16_bytes_an_update(tmp_path: Path) -> None:
    run = write(tmp_path / "a", [5.0, 4.5, math.nan, 1e300])
    assert (run / "updates.bin").stat().st_size == 16 * 5
    kept = [record.loss for record in records(run) if record is not None]
    assert kept[:2] == [5.0, 4.5]
    assert math.isnan(kept[2])
    assert kept[3] == math.inf


def test_cut_back_it_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    losses = [5 - n / 10 for n in range(10)]
    whole = write(tmp_path / "whole", losses)
    cut = write(tmp_path / "cut", [*losses[:6], 9.0, 9.0, 9.0, 9.0, 9.0, 9.0])
    write(cut, losses[6:], resume_step=6)
    assert (cut / "updates.bin").read_bytes() == (whole / "updates.bin").read_bytes()


def test_what_was_made_before_there_was_such_a_file_is_not_known(tmp_path: Path) -> None:
    run = write(tmp_path / "a", [1.0, 2.0], resume_step=5000)
    file = UpdatesFile(run)
    assert (file.first_known(), file.num_updates, file.record(17)) == (5001, 5002, None)
    file.close()


def test_pairs_are_known_again(tmp_path: Path) -> None:
    file = UpdatesFile(write(tmp_path / "a", [1.0, 2.0, 3.0]))
    assert [file.is_of(step, step * 7) for step in (1, 2, 3, 4)] == [True, True, True, None]
    assert [file.is_of(step, 8) for step in (1, 2, 3)] == [False] * 3
    file.close()
    late = UpdatesFile(write(tmp_path / "b", [1.0, 2.0], resume_step=10))
    assert [late.is_of(step, step * 7) for step in (10, 11, 12)] == [None, None, True]
    late.close()


def bytes_read_by_this_process() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize("at", [1, 2, 777, 65_536, MANY])
def test_where_two_runs_part_is_found_by_few_reads(tmp_path: Path, at: int) -> None:
    losses = [1.0] * MANY
    runs = [write(tmp_path / "a", losses), write(tmp_path / "b", [*losses[: at - 1], 2.0, *losses[at:]])]
    files = [UpdatesFile(run) for run in runs]
    overhead = -bytes_read_by_this_process() + bytes_read_by_this_process()
    begin = bytes_read_by_this_process()
    a, b = files

    def differs(step: int) -> bool:
        one, two = a.record(step), b.record(step)
        assert one is not None
        assert two is not None
        return one.losses != two.losses

    assert first_where(differs, 1, MANY) == at
    read = bytes_read_by_this_process() - begin - overhead
    most = 2 * 16 * (math.ceil(math.log2(MANY)) + 1)
    assert 0 < read <= most < (runs[0] / "updates.bin").stat().st_size / 1000
    assert abs(a.bytes_read + b.bytes_read - 2 * 16 - read) <= 64, "what it says of itself"
    for file in files:
        file.close()


def test_a_disk_that_takes_nothing_leaves_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "a"
    run.mkdir()
    log = UpdateLog(run, resume_step=0)
    really = os.pwrite

    def full(file: int, data: bytes, place: int) -> int:
        if place == 16 * 2:
            raise OSError(28, "No space left on device")
        return really(file, data, place)

    monkeypatch.setattr(os, "pwrite", full)
    for step in (1, 2, 3):
        log.write(step, step, 1.0)
    log.close()
    first, second, third = records(run)
    assert (first is None, second is None, third is None) == (False, True, False)
