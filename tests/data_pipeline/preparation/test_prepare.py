"""What a preparation writes: the same bytes always, and what stock readers read of them."""

import dataclasses
import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from configs import CorpusFiles, PrepareSection, TokenizerSection, UserError
from data_pipeline.preparation import prepare
from data_pipeline.prepared.dataset import Dataset
from tests.conftest import contents
from tests.data_pipeline.preparation.made import PAIRS, Corpus


def _lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")


def test_the_bytes_do_not_depend_on_workers_or_place(
    small: Dataset, small_section: PrepareSection, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(small_section.root, tmp_path / "elsewhere"))
    section = dataclasses.replace(small_section, output=str(tmp_path / "new" / "out"), root=str(root), workers=2)
    prepare.run(section)
    assert contents(tmp_path / "new" / "out") == contents(small.folder)
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


def test_held_out_text_is_stored_as_it_is(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "v.en").write_bytes("a\u2028b  c\n\n x\r\n".encode())
    (tmp_path / "v.fr").write_bytes("A\x85\nB\tC\nD".encode())
    prepare.run(corpus(PAIRS, valid=CorpusFiles(source=["v.en"], target=["v.fr"])))
    dataset = Dataset.load(tmp_path / "out")
    assert dataset.held_out("valid") == (["a\u2028b  c", "", " x"], ["A\x85", "B\tC", "D"])
    with pytest.raises(UserError, match=r"has no test set .*valid"):
        dataset.held_out("test")


def test_nothing_left(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing is left of 3 pairs"):
        prepare.run(corpus([("", "x"), (" ", "y"), ("z", "")]))
    with pytest.raises(UserError, match=r"nothing is left of 200 pairs \(.*200 too long.*\)"):
        prepare.run(corpus(PAIRS, max_pieces=1))
    assert not (tmp_path / "out").exists()


def test_the_first_pass_apart(corpus: Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a process of its own, as for large corpora: the same bytes, and its errors are the user's."""
    section = corpus(PAIRS)
    prepare.run(section)
    wanted = contents(tmp_path / "out")
    monkeypatch.setattr(prepare, "BYTES_A_WORKER", 1)
    prepare.run(dataclasses.replace(section, output=str(tmp_path / "apart")))
    assert contents(tmp_path / "apart") == wanted
    with pytest.raises(UserError, match=r"vocab_size: 5000 pieces .* at most \d+$"):
        prepare.run(
            dataclasses.replace(section, tokenizer=TokenizerSection(vocab_size=5000), output=str(tmp_path / "x"))
        )


def test_wide_token_ids(corpus: Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(prepare, "WIDE", 63)
    prepare.run(corpus(PAIRS))
    dataset = Dataset.load(tmp_path / "out")
    assert dataset.place(0) is None, "places are not recorded unless that is asked for"
    assert dataset.read_block(0).source.dtype == np.uint32
    assert dataset.verify() == []
