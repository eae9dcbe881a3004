"""A preparation that is killed, or whose disk is full, goes on to the same bytes."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from configs import PrepareSection, UserError
from data_pipeline.preparation import prepare, staging, survey
from data_pipeline.preparation.writing.spill import SpillFolder
from tests.conftest import contents
from tests.data_pipeline.preparation.made import PAIRS, Corpus
from tests.waiting import PATIENCE, wait_until


def test_a_full_disk_is_gone_on_from(corpus: Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(SpillFolder, "collect_segments", fail)
        with pytest.raises(UserError, match=r"No space left on device.* the same command goes on"):
            prepare.run(corpus(PAIRS))
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(survey, "train_tokenizer", fail)  # is not done again
    prepare.run(corpus(PAIRS))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "train.en", "train.fr"]


def test_two_at_once_are_refused(in_spans: PrepareSection, tmp_path: Path) -> None:
    work = staging.WorkFolder.beside(tmp_path / "out")
    with (
        work.lock(tmp_path / "out", shared=True),
        pytest.raises(UserError, match=r"out is being prepared by another process"),
    ):
        prepare.run(in_spans)
    prepare.run(in_spans)


RUN = """
import sys
import tempfile
from pathlib import Path
from configs import CleaningSection, CorpusFiles, PrepareSection, TokenizerSection
from data_pipeline.preparation.raw import corpus
from data_pipeline.preparation import prepare
corpus.SPAN_PAIRS = 1000
if __name__ == "__main__":
    prepare.run(PrepareSection(output="out", train=CorpusFiles(source=["train.en"], target=["train.fr"]),
                               tokenizer=TokenizerSection(vocab_size=64, threads=1), workers=int(sys.argv[1]),
                               pairs_per_block=16, blocks_per_shard=40, cleaning=CleaningSection(duplicates="drop")))
"""


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_any_moment_the_bytes_are_the_same(in_spans: PrepareSection, tmp_path: Path, kills: int) -> None:
    """SIGKILL at random moments, run again each time; the kills leave no process, the end no work folder."""
    prepare.run(in_spans)
    wanted = contents(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "run.py").write_text(RUN)
    environment = {**os.environ, "PYTHONPATH": str(Path(prepare.__file__).parents[2])}
    random = np.random.default_rng(0)
    num_kills = 0
    for attempt in range(60):
        command = [sys.executable, "run.py", str(1 + attempt % 2)]
        log = (tmp_path / "log").open("w+")
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, start_new_session=True, stdout=log, stderr=log
        )
        try:
            process.wait(timeout=float(random.uniform(0.3, 2.0)) if num_kills < kills else PATIENCE)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            num_kills += 1
        process.wait()
        log.close()
        # Its encoding processes end by themselves.
        wait_until(lambda: not _session_members(process.pid), "their end")  # noqa: B023
        if (tmp_path / "out").exists():  # a kill may come after the last rename
            assert contents(tmp_path / "out") == wanted
            if num_kills >= kills:
                break
            shutil.rmtree(tmp_path / "out")
        else:
            assert process.returncode == -signal.SIGKILL, (tmp_path / "log").read_text()
    assert num_kills >= kills
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "out", "run.py", "train.en", "train.fr"]


def test_killed_after_the_last_rename(
    in_spans: PrepareSection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(staging.WorkFolder, "remove", lambda _: None)
        prepare.run(in_spans)
    wanted = contents(tmp_path / "out")
    assert (tmp_path / ".out.preparing").exists()
    shutil.rmtree(tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(staging.WorkFolder, "remove", lambda _: None)
        prepare.run(in_spans)  # the tables are there, the shards are gone
    assert contents(tmp_path / "out") == wanted
    prepare.run(in_spans)
    assert not (tmp_path / ".out.preparing").exists()


def test_killed_while_the_work_folder_is_removed(
    in_spans: PrepareSection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is left of it is not gone on with, should the output be removed too."""

    def killed(path: Path, *_: object, **__: object) -> None:
        if found := next(Path(path).rglob("*.pairs"), None):
            found.unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            prepare.run(in_spans)
    wanted = contents(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    prepare.run(in_spans)
    assert contents(tmp_path / "out") == wanted
    assert not (tmp_path / ".out.preparing").exists()


def _session_members(session: int) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[3] == str(session) and fields[0] != "Z":
            found.append(path.parent.name)
    return found
