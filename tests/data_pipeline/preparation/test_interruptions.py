"""A preparation that is killed, in parts or whole, goes on to the same bytes; what does not fit is refused by name."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs import PrepareSection, UserError
from data_pipeline.preparation import prepare, survey
from data_pipeline.preparation.prepare import Part, Preparation
from data_pipeline.preparation.shards import ShardJob
from data_pipeline.preparation.staging import WorkFolder
from tests.conftest import contents
from tests.data_pipeline.preparation.made import PAIRS, Corpus
from tests.waiting import PATIENCE, wait_until

Patch = pytest.MonkeyPatch


@pytest.fixture
def wanted(in_spans: PrepareSection, tmp_path: Path) -> dict[str, bytes]:
    """What a preparation without parts writes."""
    prepare.run(dataclasses.replace(in_spans, output=str(tmp_path / "whole")))
    return contents(tmp_path / "whole")


def _fail(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_full_disk_is_gone_on_from(corpus: Corpus, monkeypatch: Patch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ShardJob, "write", _fail)
        with pytest.raises(UserError, match=r"No space left on device.* the same command resumes"):
            prepare.run(corpus(PAIRS))
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(survey, "train_tokenizer", _fail)  # is not done again
    prepare.run(corpus(PAIRS))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "train.en", "train.fr"]


def test_two_at_once_are_refused(in_spans: PrepareSection, tmp_path: Path) -> None:
    work = WorkFolder.beside(tmp_path / "out")
    with (
        work.lock(tmp_path / "out", shared=True),
        pytest.raises(UserError, match=r"out is being prepared by another process"),
    ):
        prepare.run(in_spans)


RUN = """
import sys
from configs import CleaningSection, CorpusFiles, PrepareSection, TokenizerSection
from data_pipeline.preparation import corpus
from data_pipeline.preparation import prepare
corpus.SPAN_PAIRS = 1000
if __name__ == "__main__":
    workers, part, merge = int(sys.argv[1]), sys.argv[2], sys.argv[2] == "merge"
    prepare.run(PrepareSection(output="out", train=CorpusFiles(source=["train.en"], target=["train.fr"]),
                               tokenizer=TokenizerSection(vocab_size=64, threads=1), workers=workers,
                               pairs_per_block=16, blocks_per_shard=40, cleaning=CleaningSection(duplicates="drop")),
                part=prepare.Part(*map(int, part.split("/"))) if "/" in part else None, merge=merge)
"""


@pytest.mark.parametrize(
    ("steps", "kills"),
    [
        (["whole"], 2),
        pytest.param(["whole"], 20, marks=pytest.mark.slow),
        pytest.param(["3/3", "1/3", "2/3", "merge"], 10, marks=pytest.mark.slow),
        pytest.param([*(f"{n}/7" for n in range(1, 8)), "merge"], 10, marks=pytest.mark.slow),
    ],
)
def test_killed_at_any_moment_the_bytes_are_the_same(
    in_spans: PrepareSection, wanted: dict[str, bytes], tmp_path: Path, steps: list[str], kills: int
) -> None:
    """SIGKILL at random moments, run again each time; the kills leave no process, the end no work folder."""
    (tmp_path / "run.py").write_text(RUN)
    environment = {**os.environ, "PYTHONPATH": str(Path(prepare.__file__).parents[2])}
    random = np.random.default_rng(len(steps))
    num_kills = attempts = 0
    while num_kills < kills:
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        for step in steps:
            code = -signal.SIGKILL
            while code == -signal.SIGKILL and not (tmp_path / "out").exists():  # it may come after the last rename
                attempts += 1
                seconds = float(random.uniform(0.3, 2.0)) if num_kills < kills and attempts < 60 else PATIENCE
                code = _run([str(1 + attempts % 2), step], tmp_path, environment, seconds)
                num_kills += code == -signal.SIGKILL
            assert code in (0, -signal.SIGKILL), (tmp_path / "log").read_text()
        assert contents(tmp_path / "out") == wanted
        assert attempts < 60
    prepare.run(in_spans)  # what a kill behind the last rename has left goes
    names = ["log", "out", "run.py", "train.en", "train.fr", "whole"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def _run(arguments: list[str], folder: Path, environment: dict[str, str], seconds: float) -> int:
    """Run for so long, then kill; the exit code, once all its processes have ended by themselves."""
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "run.py", *arguments],
            cwd=folder,
            env=environment,
            start_new_session=True,
            stdout=log,
            stderr=log,
        )
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.wait()
    wait_until(lambda: not _session_members(process.pid), "their end")
    return process.returncode


def _session_members(session: int) -> list[str]:
    members = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[3] == str(session) and fields[0] != "Z":
            members.append(path.parent.name)
    return members


def test_killed_while_the_work_folder_is_removed(
    in_spans: PrepareSection, wanted: dict[str, bytes], monkeypatch: Patch, tmp_path: Path
) -> None:
    """What is left of it is not gone on with, should the output be removed too."""

    def killed(path: Path, *_: object, **__: object) -> None:
        if file := next(Path(path).rglob("span-*.npz"), None):
            file.unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            prepare.run(in_spans)
    assert (tmp_path / ".out.preparing").exists()
    shutil.rmtree(tmp_path / "out")
    prepare.run(in_spans)
    assert contents(tmp_path / "out") == wanted
    assert not (tmp_path / ".out.preparing").exists()


def _prepare_parts(section: PrepareSection) -> Path:
    """All of three parts but their merge; the folder of their spans."""
    for number in (3, 1, 2):
        prepare.run(section, part=Part(number, 3))
    [folder] = (path for path in Path(section.root).glob(".out.preparing/*") if path.is_dir())
    return folder


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_span_is_refused_by_name_and_made_again(
    in_spans: PrepareSection, wanted: dict[str, bytes], tmp_path: Path, damage: str
) -> None:
    span = _prepare_parts(in_spans) / "span-000004.npz"
    content = bytearray(span.read_bytes())
    content[len(content) // 2] ^= 1
    span.write_bytes(content[:-100] if damage == "cut" else content)
    if damage != "remove":
        with pytest.raises(UserError, match=r"span-000004.npz: is damaged; remove it and run the same command again"):
            prepare.run(in_spans, merge=True)
    span.unlink()
    with pytest.raises(UserError, match=r"1 of 12 spans of the corpus are not encoded yet \(the first is number 4\)"):
        prepare.run(in_spans, merge=True)
    prepare.run(in_spans, part=Part(2, 3))
    prepare.run(in_spans, merge=True)
    assert contents(tmp_path / "out") == wanted


def test_parts_of_other_settings_are_not_merged(
    in_spans: PrepareSection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is begun before that is said; a part with these settings stands beside them."""
    _prepare_parts(in_spans)
    section = dataclasses.replace(in_spans, max_pieces=99)
    before = contents(tmp_path / ".out.preparing")
    with pytest.raises(UserError, match=r"no part is prepared with these settings; run each --part"):
        prepare.run(section, merge=True)
    assert contents(tmp_path / ".out.preparing") == before
    capsys.readouterr()
    prepare.run(section, part=Part(1, 3))
    assert "has work of other settings, which is not merged with this part" in capsys.readouterr().err


def test_an_input_that_changes_meanwhile(corpus: Corpus, monkeypatch: Patch, tmp_path: Path) -> None:
    encode = Preparation.encode

    def late(self: Preparation, *arguments: Any) -> None:
        with (tmp_path / "train.en").open("a") as file:
            file.write("more\n")
        encode(self, *arguments)

    monkeypatch.setattr(Preparation, "encode", late)
    with pytest.raises(UserError, match=r"train.en: was changed while it was read"):
        prepare.run(corpus(PAIRS))
    assert not (tmp_path / "out").exists()
