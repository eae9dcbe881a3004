"""Training whose streams are closed, or whose output cannot be written."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import Corpus, environment, small_disk
from tests.forked import Forked
from tests.waiting import PATIENCE

SHORT = ("training.max_updates=2", "evaluation.max_pairs=2", "schedule.warmup_updates=1")


def _shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", command.replace("zeromt", f"{sys.executable} -m zeromt")],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize(
    "streams", ["<&- >&- 2>&-", pytest.param(">/dev/full", marks=pytest.mark.slow), "2>/dev/full", "| head -1"]
)
def test_training_with_closed_or_full_streams(streams: str, corpus_en_fr: Corpus, tmp_path: Path) -> None:
    settings = [*corpus_en_fr.overrides, *SHORT, f"output={tmp_path}", "training.log_every=1"]
    done = _shell(f"zeromt train debug {' '.join(settings)} {streams}", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "debug" / "checkpoints" / "step-00000002").is_dir()


def test_places_that_cannot_be(corpus_en_fr: Corpus, forked: Forked, tmp_path: Path) -> None:
    """It is found before there is anything to save."""
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for place, said in (("file/runs", "Not a directory"), ("loop/runs", "symbolic links"), ("x" * 300, "too long")):
        for command in (["train"], ["launch", "local", "--nproc", "1"]):
            options = ["debug", *corpus_en_fr.overrides, f"output={tmp_path / place}"]
            done = forked.zeromt(*command, *options, cwd=tmp_path)
            assert (done.code, done.err.count("\n"), said in done.err) == (2, 1, True), done.err
    assert {p.name for p in tmp_path.iterdir()} == {"file", "loop"}
    (tmp_path / "debug").mkdir()
    (tmp_path / "debug" / "checkpoints").write_text("")
    done = forked.zeromt("train", "debug", *corpus_en_fr.overrides, f"output={tmp_path}", cwd=tmp_path)
    said = f"zeromt: error: output: {str(tmp_path / 'debug' / 'checkpoints')!r} cannot be written"
    assert (done.code, done.err.startswith(said), done.err.count("\n")) == (2, True, 1), done.err


def test_a_disk_that_fills(corpus_en_fr: Corpus, tmp_path: Path) -> None:
    """The cause is named in one line, and no traceback hides it; at the start, too."""
    with small_disk(tmp_path / "runs", "1m") as runs:
        if runs is None:
            pytest.skip("no file system can be mounted here")
        settings = " ".join([*corpus_en_fr.overrides, *SHORT, f"output={runs}", "checkpoint.max_failures=1"])
        done = _shell(f"zeromt launch local --nproc 1 --max-restarts 0 debug {settings}", tmp_path)
        assert done.returncode == 1, done.stderr
        assert "Traceback" not in done.stderr
        assert sum("bytes are free, a checkpoint needs" in line for line in done.stderr.splitlines()) == 1
        (runs / "new").mkdir()
        with suppress(OSError), (runs / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        done = _shell(f"zeromt train debug name=new {settings}", tmp_path)
        [line] = done.stderr.splitlines()
        assert line.startswith(f"zeromt: error: output: {str(runs / 'new')!r} cannot be written: No space left")
        assert done.returncode == 2
        assert not list(runs.glob("*/.shared-*"))
