"""Commands whose outputs are inputs or cannot be written, or whose streams are closed: nothing is lost."""

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.cli import main
from tests.conftest import Corpus, environment, zeromt
from tests.trainer.conftest import TrainedRun
from trainer import loading
from trainer.checkpoint.format import Checkpoint
from trainer.loading import find_checkpoint, with_checkpoints


@pytest.fixture
def lines(trained: TrainedRun, tmp_path: Path) -> Path:
    """A folder with five lines in s and r."""
    for name, path in (("s", trained.source), ("r", trained.reference)):
        (tmp_path / name).write_text("".join(path.read_text().splitlines(keepends=True)[:5]))
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["translate", "-i", "s", "-o", "s"],
        ["translate", "-i", "s", "-o", "link"],
        ["translate", "-i", "s", "--prefix", "r", "-o", "r"],
        ["translate", "-i", "s", "--score", "--target", "r", "-o", "r"],
        ["translate", "-i", "s", "-o", "new", "--alignment", "new"],
        ["translate", "-i", "s", "-o", "new", "--attention", "s"],
        ["evaluate", "--source", "s", "--reference", "r", "-o", "r"],
        ["evaluate", "--source", "s", "--reference", "r", "-o", "link"],
    ],
    ids=" ".join,
)
def test_an_output_that_is_an_input(
    arguments: list[str],
    lines: Path,
    trained: TrainedRun,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(lines)
    (lines / "link").symlink_to("s")
    before = (Path("s").read_bytes(), Path("r").read_bytes())
    assert main([arguments[0], str(trained.folder), *arguments[1:]]) == 2
    assert (Path("s").read_bytes(), Path("r").read_bytes()) == before, "an input has changed"
    assert not Path("new").exists()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "names, too; give another file" in said[0]


def test_scores_are_shown_whatever_becomes_of_the_file(
    lines: Path, trained: TrainedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    source, reference = str(lines / "s"), str(lines / "r")
    code = main(["evaluate", str(trained.folder), "--source", source, "--reference", reference, "-o", "/dev/full"])
    said = capsys.readouterr()
    assert '"bleu"' in said.out
    assert code == 2
    assert said.err == (
        "zeromt: error: --output: '/dev/full' cannot be written: No space left on device; make room, "
        "or give another place\n"
    )


def test_compressed_input_and_a_byte_order_mark(
    lines: Path, trained: TrainedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (lines / "s").read_bytes()
    (lines / "s.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + text))
    assert main(["translate", str(trained.folder), "-i", str(lines / "s")]) == 0
    plain = capsys.readouterr().out
    assert main(["translate", str(trained.folder), "-i", str(lines / "s.gz")]) == 0
    assert capsys.readouterr().out == plain
    assert len(plain.splitlines()) == 5


@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_idle_pipe_is_answered(processes: str, lines: Path, trained: TrainedRun) -> None:
    """One line at a time, as a program that holds the pipe open would; it goes on when the answer is there."""
    process = subprocess.Popen(
        zeromt("translate", str(trained.folder), "--processes", processes),
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        answers = []
        for line in (lines / "s").read_text().splitlines()[:3]:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answers.append(process.stdout.readline())
        process.stdin.close()
        assert process.stdout.read() == ""
        assert process.wait(60) == 0
        assert all(answers)
    finally:
        process.kill()
        process.wait()


class TestWhichCheckpoint:
    def test_before_the_first(self, trained: TrainedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        shutil.copy(trained.folder / "config.yaml", tmp_path)
        for make in (False, True):
            if make:
                (tmp_path / "checkpoints").mkdir()
            assert main(["translate", str(tmp_path)]) == 2
            assert "has no checkpoint yet; it can be used after its first save" in capsys.readouterr().err
        assert main(["translate", str(tmp_path / "checkpoints")]) == 2
        assert "neither a run's folder nor a checkpoint" in capsys.readouterr().err

    def test_one_that_is_deleted_while_it_is_looked_at(
        self, trained: TrainedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Path(shutil.copytree(trained.folder, tmp_path / "run"))
        whole = loading._whole

        def deleted_meanwhile(folder: Path) -> Checkpoint:
            if folder.name == "step-00000300" and folder.exists():
                shutil.rmtree(folder)
            return whole(folder)

        monkeypatch.setattr(loading, "_whole", deleted_meanwhile)
        assert find_checkpoint(run).folder.name == "step-00000150"

    def test_one_that_is_deleted_before_it_is_loaded(self, trained: TrainedRun, tmp_path: Path) -> None:
        run = Path(shutil.copytree(trained.folder, tmp_path / "run"))
        seen = []

        def load(found: list[Checkpoint]) -> str:
            seen.append(found[0].folder.name)
            if len(seen) == 1:
                shutil.rmtree(found[0].folder)
            return (found[0].folder / "manifest.json").read_text()

        assert with_checkpoints([str(run)], load)
        assert seen == ["step-00000300", "step-00000150"]


def _shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = command.replace("zeromt", f"{sys.executable} -m launcher")
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("streams", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", ">/dev/full", "2>/dev/full"])
def test_training_with_closed_or_full_streams(streams: str, corpus_en_fr: Corpus, tmp_path: Path) -> None:
    settings = " ".join([*corpus_en_fr.overrides, f"output={tmp_path}", "training.max_updates=2"])
    more = "evaluation.max_pairs=2 training.tensorboard=false schedule.warmup_updates=1 training.log_every=1"
    done = _shell(f"zeromt train debug {settings} {more} {streams}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "debug" / "checkpoints" / "step-00000002").is_dir()
    assert "Logging error" not in done.stderr


def test_a_reader_that_has_enough(corpus_en_fr: Corpus, tmp_path: Path) -> None:
    settings = " ".join([*corpus_en_fr.overrides, f"output={tmp_path}", "training.max_updates=12"])
    more = "evaluation.max_pairs=2 training.tensorboard=false schedule.warmup_updates=1 training.log_every=1"
    done = _shell(f"zeromt train debug {settings} {more} | head -1", tmp_path)
    assert done.stderr == ""
    assert (tmp_path / "debug" / "checkpoints" / "step-00000012").is_dir()


@pytest.mark.parametrize("command", ["train", "launch local --nproc 1"])
@pytest.mark.parametrize("place", ["file/runs", "loop/runs", "x" * 300])
def test_places_that_cannot_be(command: str, place: str, corpus_en_fr: Corpus, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    settings = " ".join([*corpus_en_fr.overrides, f"output={tmp_path / place}"])
    done = _shell(f"zeromt {command} debug {settings}", tmp_path)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert any(said in done.stderr for said in ("Not a directory", "too long", "symbolic links"))
    assert {p.name for p in tmp_path.iterdir()} == {"file", "loop"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_full_disk_at_the_start(corpus_en_fr: Corpus, tmp_path: Path) -> None:
    """One line, no empty .shared-* file."""
    runs = tmp_path / "runs"
    runs.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(runs)], check=False).returncode:
        pytest.skip("no mounts here")
    try:
        (runs / "filler").write_bytes(b"x" * 4096)
        settings = " ".join([*corpus_en_fr.overrides, f"output={runs}"])
        done = _shell(f"zeromt train debug {settings}", tmp_path)
        assert done.returncode in (1, 2), done.stderr
        assert "No space left on device; make room" in done.stderr
        assert "Traceback" not in done.stderr
        assert not list(runs.glob("*/.shared-*"))
    finally:
        subprocess.run(["umount", str(runs)], check=False)
