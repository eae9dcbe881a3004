"""What is read, and where the dataset goes: named where it cannot be, before the work."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from configs import CorpusFiles, TokenizerSection, UserError
from data_pipeline.preparation import prepare
from data_pipeline.preparation.readers.lines import Tsv
from tests.data_pipeline.preparation.made import PAIRS, Corpus


def test_inputs_are_named(corpus: Corpus, tmp_path: Path) -> None:
    section = corpus(PAIRS)
    (tmp_path / "empty.en").touch()
    os.mkfifo(tmp_path / "pipe")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"train": CorpusFiles()}, "prepare.train: no file is named"),
        ({"train": CorpusFiles(files=["no.tsv"], reader=Tsv())}, r"prepare.train: .*no.tsv: no such file"),
        ({"train": CorpusFiles(files=["*.tsv"], reader=Tsv())}, r"prepare.train: .*\*.tsv: no such file"),
        ({"train": CorpusFiles(files=["."], reader=Tsv())}, r"prepare.train: .*: is not a file"),
        (
            {"train": CorpusFiles(files=["pipe"], reader=Tsv())},
            "prepare.train: .*pipe: is not a file that can be read several times",
        ),
        ({"valid": CorpusFiles(files=["empty.en"], reader=Tsv())}, r"prepare.valid: .*empty.en: is empty"),
        ({"output": "pipe:cat"}, "scheme 'pipe:' cannot be read"),
        ({"output": "s3://bucket/x"}, "scheme 's3:' cannot be read"),
        ({"output": str(tmp_path / "train.en" / "x")}, "prepare.output: .* is, or is in, what prepare.train"),
        ({"tokenizer": TokenizerSection(vocab_size=5000)}, r"vocab_size: 5000 pieces .* at most \d+$"),
    ]
    for change, message in cases:
        with pytest.raises(UserError, match=message) as caught:
            prepare.run(dataclasses.replace(section, **change))
        assert "\n" not in str(caught.value)


def test_links_are_followed(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "scratch" / "set")
    (tmp_path / "scratch").mkdir()
    prepare.run(dataclasses.replace(corpus(PAIRS), output=str(tmp_path / "link")))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "scratch" / "set" / "index.json").is_file()


def test_what_cannot_be_written_is_known_before_the_corpus_is_read(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = dataclasses.replace(corpus(PAIRS), output=str(tmp_path / "out"))
    monkeypatch.setattr(os, "access", lambda *_: False)  # a mode would not stop root
    monkeypatch.setattr(prepare, "inspect_inputs", lambda *_: pytest.fail("the work has begun"))
    with pytest.raises(UserError, match=r"prepare\.output: .*: cannot be written; give a folder"):
        prepare.run(section)
