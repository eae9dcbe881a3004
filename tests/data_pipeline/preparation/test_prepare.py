import contextlib
import dataclasses
import errno
import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece

from configs import CleaningSection, CorpusFiles, PrepareSection, TokenizerSection, UserError
from data_pipeline.preparation import prepare, staging, survey
from data_pipeline.preparation.prepare import Preparation, Share
from data_pipeline.preparation.raw import corpus as corpora
from data_pipeline.preparation.writing.spill import SpillFolder
from data_pipeline.prepared.dataset import Dataset

Corpus = Callable[..., PrepareSection]

PAIRS = [(f"the cat number {n} sat", f"le chat numéro {n} assis") for n in range(200)]


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")


def test_the_bytes_do_not_depend_on_workers_or_place(
    small: Dataset, small_section: PrepareSection, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(small_section.root, tmp_path / "elsewhere"))
    section = dataclasses.replace(small_section, output=str(tmp_path / "new" / "out"), root=str(root), workers=2)
    prepare.run(section)
    assert _contents(tmp_path / "new" / "out") == _contents(small.folder)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]


def test_stock_webdataset_reads_the_corpus(small: Dataset, small_section: PrepareSection) -> None:
    """The oracle: webdataset and sentencepiece, none of our code."""
    import webdataset

    processor = sentencepiece.SentencePieceProcessor(model_file=str(small.folder / "tokenizer.model"))
    decoded: tuple[list[str], list[str]] = ([], [])
    sides: list[list[str]] = []
    for shard in sorted(small.folder.glob("train-*.tar")):
        for sample in webdataset.WebDataset(str(shard), shardshuffle=False).decode():
            assert sample["len.npy"].dtype == sample["src.npy"].dtype == np.uint16
            for side, name in enumerate(("src.npy", "tgt.npy")):
                rows = np.split(sample[name], np.cumsum(sample["len.npy"][:, side], dtype=np.int64)[:-1])
                decoded[side].extend(processor.decode([row.tolist() for row in rows]))
    for side, name in enumerate(("valid.en.gz", "valid.fr.gz")):
        lines = _lines(Path(small_section.root) / name)
        assert len(lines) == 1000
        assert decoded[side] != lines
        assert sorted(decoded[side]) == sorted(processor.decode(processor.encode(lines)))
        assert len(plain := {line for line in lines if line.isascii()}) > 300
        assert plain <= set(decoded[side])
        sides.append(processor.decode(processor.encode(lines)))
    assert sorted(zip(*decoded, strict=True)) == sorted(zip(*sides, strict=True))


def test_the_index_adds_up(small: Dataset) -> None:
    index = small.index
    assert (index.pairs, len(index.shards)) == (1000, 4)
    assert all(abs(shard.pairs - 250) < 60 for shard in index.shards)
    assert small.lengths.sum(axis=0, dtype=np.int64).tolist() == [index.source_tokens, index.target_tokens]
    assert sum(shard.bytes for shard in index.shards) == sum(p.stat().st_size for p in small.folder.glob("*.tar"))
    assert not any(index.dropped.values())


def test_held_out_text_is_stored_as_it_is(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "v.en").write_bytes("a\u2028b  c\n\n x\r\n".encode())
    (tmp_path / "v.fr").write_bytes("A\x85\nB\tC\nD".encode())
    prepare.run(corpus(PAIRS, valid=CorpusFiles(source=["v.en"], target=["v.fr"])))
    dataset = Dataset.load(tmp_path / "out")
    assert dataset.held_out("valid") == (["a\u2028b  c", "", " x"], ["A\x85", "B\tC", "D"])
    with pytest.raises(UserError, match=r"has no test set .*valid.*; set prepare\.test"):
        dataset.held_out("test")


def test_the_same_again_is_quick_and_another_is_refused(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    section = corpus(PAIRS)
    prepare.run(section)
    assert "200 kept of 200" in capsys.readouterr().out
    before = _contents(tmp_path / "out")
    prepare.run(dataclasses.replace(section, workers=2))
    assert "already prepared from the same input, 200 pairs" in capsys.readouterr().out
    advice = "remove it, or choose another prepare.output"
    with pytest.raises(UserError, match=rf"max_pieces was 512 and is 9.*{advice}"):
        prepare.run(dataclasses.replace(section, max_pieces=9))
    with pytest.raises(UserError, match=rf"tokenizer\.vocab_size was 64 and is 70.*{advice}"):
        prepare.run(dataclasses.replace(section, tokenizer=TokenizerSection(vocab_size=70, threads=1)))
    with pytest.raises(UserError, match=rf"other input files.*{advice}"):
        prepare.run(corpus(PAIRS[:-1]))
    assert _contents(tmp_path / "out") == before


def test_what_is_no_dataset_is_not_overwritten(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match="is no prepared dataset"):
        prepare.run(corpus(PAIRS))
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "out").mkdir()  # an empty folder is room
    prepare.run(corpus(PAIRS))
    assert Dataset.load(tmp_path / "out").num_pairs == 200


BAD_PAIRS = [("", "x"), ("a cat", "  "), ("\u3000", "y"), ("the cat " * 300, "z"), ("sat", "le chat " * 300)]


def test_bad_pairs_are_dropped_and_counted(corpus: Corpus, tmp_path: Path) -> None:
    equal = [("same", "same"), ("cat", "cat")]
    prepare.run(corpus([*PAIRS[:50], *BAD_PAIRS, *equal, *PAIRS[50:]], max_pieces=100))
    dataset = Dataset.load(tmp_path / "out")
    assert dataset.num_pairs == 202
    assert {name: n for name, n in dataset.index.dropped.items() if n} == {"empty": 3, "too long": 2}
    assert dataset.index.source_equals_target == 2
    assert int(dataset.lengths.max()) <= 100 < int(dataset.lengths.min()) + 100


@pytest.mark.parametrize("workers", [1, 2])
def test_bad_pairs_can_be_errors(corpus: Corpus, tmp_path: Path, workers: int) -> None:
    long = corpus([*PAIRS, ("the cat " * 300, "z")], on_bad_pair="error", workers=workers)
    with pytest.raises(UserError, match=r"train.en: line 201: the source has \d+ pieces; allowed is at most prep"):
        prepare.run(long)
    with pytest.raises(UserError, match=r"train.en: line 7: the target is empty"):
        prepare.run(corpus([*PAIRS[:6], ("a", " "), *PAIRS[6:], ("", "")], on_bad_pair="error", workers=workers))
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_nothing_left(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing is left of 3 pairs"):
        prepare.run(corpus([("", "x"), (" ", "y"), ("z", "")]))
    with pytest.raises(UserError, match=r"nothing is left of 200 pairs \(.*200 too long.*\)"):
        prepare.run(corpus(PAIRS, max_pieces=1))
    assert not (tmp_path / "out").exists()


def test_inputs_are_named(corpus: Corpus, tmp_path: Path) -> None:
    section = corpus(PAIRS)
    (tmp_path / "empty.en").touch()
    os.mkfifo(tmp_path / "pipe")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"train": CorpusFiles()}, "prepare.train: no file is named"),
        ({"train": CorpusFiles(tsv=["no.tsv"])}, r"prepare.train: .*no.tsv: no such file"),
        ({"train": CorpusFiles(tsv=["*.tsv"])}, r"prepare.train: .*\*.tsv: no such file"),
        ({"train": CorpusFiles(tsv=["."])}, r"prepare.train: .*: is no file"),
        ({"train": CorpusFiles(tsv=["pipe"])}, r"prepare.train: .*pipe: is a pipe or a device, which can be read once"),
        ({"valid": CorpusFiles(tsv=["empty.en"])}, r"prepare.valid: .*empty.en: is empty"),
        ({"output": "pipe:cat"}, "scheme 'pipe:' cannot be read"),
        ({"output": "s3://bucket/x"}, "scheme 's3:' cannot be read"),
        ({"output": str(tmp_path / "train.en" / "x")}, "prepare.output: .*: cannot be written"),
        ({"tokenizer": TokenizerSection(vocab_size=5000)}, r"vocab_size: 5000 pieces .* at most \d+$"),
    ]
    for change, message in cases:
        with pytest.raises(UserError, match=message) as caught:
            prepare.run(dataclasses.replace(section, **change))
        assert "\n" not in str(caught.value)


def test_unreadable_input(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> str:  # a mode of 0 would not stop root
        raise PermissionError(13, "Permission denied")

    section = corpus(PAIRS)
    monkeypatch.setattr(staging, "hash_file", refuse)
    with pytest.raises(UserError, match=r"train.en: cannot be read: Permission denied"):
        prepare.run(section)


def test_too_little_disk(corpus: Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(UserError, match=r"needs some 0 MB, 0 MB are free"):
        prepare.run(corpus(PAIRS))


def test_a_full_disk_is_gone_on_from(corpus: Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(SpillFolder, "collect_places", fail)
        with pytest.raises(UserError, match=r"the disk is full.* run the same command, which goes on"):
            prepare.run(corpus(PAIRS))
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(survey, "train_tokenizer", fail)  # is not done again
    prepare.run(corpus(PAIRS))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "train.en", "train.fr"]


def test_an_input_that_changes_meanwhile(corpus: Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    encode = Preparation.encode

    def late(self: Preparation, *arguments: Any) -> None:
        with (tmp_path / "train.en").open("a") as file:
            file.write("more\n")
        encode(self, *arguments)

    monkeypatch.setattr(Preparation, "encode", late)
    with pytest.raises(UserError, match=r"train.en: was changed while it was read"):
        prepare.run(corpus(PAIRS))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.en", "train.fr"]


def _many(count: int) -> list[tuple[str, str]]:
    """Pairs of which about a tenth are there twice."""
    numbers = [n if n % 10 else n // 2 for n in range(count)]
    return [(f"the cat number {n} sat on {n % 7}", f"le chat numéro {n} assis sur {n % 7}") for n in numbers]


@pytest.fixture
def in_parts(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> PrepareSection:
    """3,000 pairs in parts of 250 and some five shards, duplicates dropped."""
    monkeypatch.setattr(corpora, "PART_PAIRS", 1000)
    cleaning = CleaningSection(duplicates="drop")
    return corpus(_many(3000), pairs_per_block=16, blocks_per_shard=40, cleaning=cleaning)


def test_duplicates_are_dropped_over_the_whole_corpus(in_parts: PrepareSection, tmp_path: Path) -> None:
    prepare.run(in_parts)
    dataset = Dataset.load(tmp_path / "out")
    different = set(_many(3000))
    assert dataset.num_pairs == len(different) < 2900
    assert dataset.index.dropped["duplicate"] == 3000 - len(different)
    decoded = set()
    tokenizer = dataset.tokenizer
    for number in range(len(dataset.blocks)):
        block = dataset.read_block(number)
        ends = np.cumsum(block.lengths[:, 1], dtype=np.int64)[:-1]
        decoded.update(tokenizer.decode_target([row.tolist() for row in np.split(block.target, ends)]))
    assert decoded == {target for _, target in different}


@pytest.mark.parametrize("form", ["text", "gz", "tsv"])
def test_shares_merge_to_the_single_run(in_parts: PrepareSection, tmp_path: Path, form: str) -> None:
    section = in_parts
    if form == "gz":
        for side in ("en", "fr"):
            data = (tmp_path / f"train.{side}").read_bytes()
            (tmp_path / f"train.{side}.gz").write_bytes(gzip.compress(data, mtime=0))
        section = dataclasses.replace(section, train=CorpusFiles(source=["train.en.gz"], target=["train.fr.gz"]))
    elif form == "tsv":
        (tmp_path / "train.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in _many(3000)), encoding="utf-8")
        section = dataclasses.replace(section, train=CorpusFiles(tsv=["train.tsv"]))
    prepare.run(section)
    wanted = _contents(tmp_path / "out")
    other = dataclasses.replace(section, output=str(tmp_path / "shared"))
    prepare.run(other, share=Share(3, 3))
    prepare.run(dataclasses.replace(other, workers=2), share=Share(1, 3))
    with pytest.raises(UserError, match=r"4 of 12 parts of the corpus are not encoded yet \(the first is number 1\)"):
        prepare.run(other, merge=True)
    prepare.run(other, share=Share(2, 3))
    prepare.run(dataclasses.replace(other, workers=2), merge=True)
    assert _contents(tmp_path / "shared") == wanted
    prepare.run(dataclasses.replace(section, output=str(tmp_path / "two"), workers=2))
    assert _contents(tmp_path / "two") == wanted
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_the_first_pass_apart(corpus: Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a process of its own, as for large corpora: the same bytes, and its errors are the user's."""
    section = corpus(PAIRS)
    prepare.run(section)
    wanted = _contents(tmp_path / "out")
    monkeypatch.setattr(prepare, "BYTES_A_WORKER", 1)
    prepare.run(dataclasses.replace(section, output=str(tmp_path / "apart")))
    assert _contents(tmp_path / "apart") == wanted
    with pytest.raises(UserError, match=r"vocab_size: 5000 pieces .* at most \d+$"):
        prepare.run(
            dataclasses.replace(section, tokenizer=TokenizerSection(vocab_size=5000), output=str(tmp_path / "x"))
        )


def test_two_at_once_are_refused(in_parts: PrepareSection, tmp_path: Path) -> None:
    work = staging.WorkFolder.beside(tmp_path / "out")
    with (
        work.lock(tmp_path / "out", shared=True),
        pytest.raises(UserError, match=r"out is being prepared by another process"),
    ):
        prepare.run(in_parts)
    prepare.run(in_parts)


RUN = """
import sys
import tempfile
from pathlib import Path
from configs import CleaningSection, CorpusFiles, PrepareSection, TokenizerSection
from data_pipeline.preparation.raw import corpus
from data_pipeline.preparation import prepare
corpus.PART_PAIRS = 1000
if __name__ == "__main__":
    prepare.run(PrepareSection(output="out", train=CorpusFiles(source=["train.en"], target=["train.fr"]),
                               tokenizer=TokenizerSection(vocab_size=64, threads=1), workers=int(sys.argv[1]),
                               pairs_per_block=16, blocks_per_shard=40, cleaning=CleaningSection(duplicates="drop")))
"""


def test_killed_ten_times_the_bytes_are_the_same(in_parts: PrepareSection, tmp_path: Path) -> None:
    """SIGKILL at random moments, run again each time; the kills leave no process, the end no work folder."""
    prepare.run(in_parts)
    wanted = _contents(tmp_path / "out")
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
            process.wait(timeout=float(random.uniform(0.3, 2.0)) if num_kills < 10 else 120)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            num_kills += 1
        process.wait()
        log.close()
        deadline = time.monotonic() + 30
        while _session_members(process.pid):  # its encoding processes end by themselves
            assert time.monotonic() < deadline
            time.sleep(0.02)
        if (tmp_path / "out").exists():  # a kill may come after the last rename
            assert _contents(tmp_path / "out") == wanted
            if num_kills >= 10:
                break
            shutil.rmtree(tmp_path / "out")
        else:
            assert process.returncode == -signal.SIGKILL, (tmp_path / "log").read_text()
    assert num_kills >= 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "out", "run.py", "train.en", "train.fr"]


def test_killed_after_the_last_rename(
    in_parts: PrepareSection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(staging.WorkFolder, "remove", lambda _: None)
        prepare.run(in_parts)
    wanted = _contents(tmp_path / "out")
    assert (tmp_path / ".out.preparing").exists()
    shutil.rmtree(tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(staging.WorkFolder, "remove", lambda _: None)
        prepare.run(in_parts)  # the tables are there, the shards are gone
    assert _contents(tmp_path / "out") == wanted
    prepare.run(in_parts)
    assert not (tmp_path / ".out.preparing").exists()


def test_killed_while_the_work_folder_is_removed(
    in_parts: PrepareSection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is left of it is not gone on with, should the output be removed too."""

    def killed(path: Path, *_: object, **__: object) -> None:
        if found := next(Path(path).rglob("*.pairs"), None):
            found.unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            prepare.run(in_parts)
    wanted = _contents(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    prepare.run(in_parts)
    assert _contents(tmp_path / "out") == wanted
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


def test_blocks_and_shards_of_any_size(corpus: Corpus, tmp_path: Path) -> None:
    """Whatever the cut, the same pairs."""
    wanted: list[tuple[int, ...]] = []
    for number, (pairs_per_block, blocks_per_shard) in enumerate([(1, 7), (64, 2), (200, 1), (1024, 1024)]):
        output = tmp_path / f"out{number}"
        prepare.run(
            corpus(PAIRS, output=str(output), pairs_per_block=pairs_per_block, blocks_per_shard=blocks_per_shard)
        )
        dataset = Dataset.load(output)
        assert dataset.verify() == []
        assert int(dataset.blocks["pairs"].max()) <= pairs_per_block
        pieces = []
        for block in (dataset.read_block(n) for n in range(len(dataset.blocks))):
            ends = np.cumsum(block.lengths[:, 0], dtype=np.int64)[:-1]
            pieces += [tuple(row.tolist()) for row in np.split(block.source, ends)]
        wanted = wanted or sorted(pieces)
        assert sorted(pieces) == wanted


def test_wide_token_ids(corpus: Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(prepare, "_token_dtype", lambda _: "uint32")
    prepare.run(corpus(PAIRS))
    dataset = Dataset.load(tmp_path / "out")
    assert dataset.read_block(0).source.dtype == np.uint32
    assert dataset.verify() == []


def test_the_index_names_no_place(small: Dataset, small_section: PrepareSection) -> None:
    text = (small.folder / "index.json").read_text()
    assert small_section.root not in text
    assert str(small.folder) not in text
    assert json.loads(text)["recipe"]["inputs"][0]["file"] == "valid.en.gz"


class TestPlacesOfTheOutput:
    """What cannot be renamed to is known before the work."""

    def test_links_are_followed(self, corpus: Corpus, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path / "scratch" / "set")
        (tmp_path / "scratch").mkdir()
        prepare.run(dataclasses.replace(corpus(PAIRS), output=str(tmp_path / "link")))
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "scratch" / "set" / "index.json").is_file()

    @pytest.mark.parametrize("name", [".", "../here", "/proc"])
    def test_no_place(self, name: str, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        section = dataclasses.replace(corpus(PAIRS), output=name)
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        monkeypatch.setattr(prepare, "inspect_inputs", lambda *_: pytest.fail("the work has begun"))
        with pytest.raises(UserError, match="give a folder in it"):
            prepare.run(section)

    def test_links_in_a_circle(self, corpus: Corpus, tmp_path: Path) -> None:
        (tmp_path / "loop").symlink_to("loop")
        for name in ("loop", "loop/a"):
            with pytest.raises(UserError, match="circle"):
                prepare.run(dataclasses.replace(corpus(PAIRS), output=str(tmp_path / name)))

    def test_what_cannot_be_written_is_known_before_the_corpus_is_read(
        self, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        section = dataclasses.replace(corpus(PAIRS), output=str(tmp_path / "out"))

        def refuse(**_: object) -> object:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
        monkeypatch.setattr(prepare, "inspect_inputs", lambda *_: pytest.fail("the work has begun"))
        with pytest.raises(UserError, match=r"prepare\.output: .*: cannot be written: Read-only file system"):
            prepare.run(section)

    def test_in_what_is_read(self, tmp_path: Path) -> None:
        (tmp_path / "rows").mkdir()
        corpus = CorpusFiles(huggingface=[str(tmp_path / "rows")])
        with pytest.raises(UserError, match=r"prepare\.output: .*/rows/out' is in .*/rows', which prepare\.train"):
            prepare.run(PrepareSection(output=str(tmp_path / "rows" / "out"), train=corpus))

    def test_full_streams(self, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The dataset is made; that it cannot be told is no failure of its place."""

        class Full(io.StringIO):
            def write(self, _: str) -> int:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(sys, "stdout", Full())
        monkeypatch.setattr(sys, "stderr", Full())
        with contextlib.suppress(OSError):
            prepare.run(dataclasses.replace(corpus(PAIRS), output=str(tmp_path / "out")))
        assert (tmp_path / "out" / "index.json").is_file()
