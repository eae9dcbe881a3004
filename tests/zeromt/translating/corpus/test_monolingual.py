"""A monolingual dataset: prepared as pairs are, translated in place of a file, and joined with its translations."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from configs import CleaningSection, CorpusFiles, PrepareSection, RunConfig, TokenizerSection, UserError
from data_pipeline.preparation import prepare
from data_pipeline.preparation.prepare import Part
from data_pipeline.preparation.raw.monolingual import DatasetReader
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.tokenizer import UNK_ID
from tests.small import FILES
from tests.zeromt.translating.corpus.conftest import Translate
from trainer.datasets import open_datasets


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `in.en`: some lines blank, one twice, one with a letter that the tokenizer does not know."""
    root = tmp_path_factory.mktemp("monolingual")
    lines = (FILES / "corpus" / "a.en").read_text().splitlines()[:300]
    lines[3], lines[9], lines[20], lines[40] = "", " \t", lines[21], "A letter \u1f600 of another world."
    (root / "in.en").write_text("".join(f"{line}\n" for line in lines))
    return root


def section(root: Path, output: str, **fields: Any) -> PrepareSection:
    tokenizer = TokenizerSection(vocab_size=300, character_coverage=0.999, threads=1)
    return PrepareSection(
        output=str(root / output),
        root=str(root),
        source_language="en",
        monolingual=True,
        train=CorpusFiles(source=["in.en"]),
        tokenizer=tokenizer,
        cleaning=CleaningSection(duplicates="drop"),
        pairs_per_block=16,
        blocks_per_shard=4,
        **fields,
    )


@pytest.fixture(scope="module")
def mono(text: Path) -> Path:
    """The dataset of `in.en`."""
    prepare.run(section(text, "mono"))
    return text / "mono"


def lines_of(folder: Path) -> list[str]:
    return DatasetReader(folder).take(10_000).decode().splitlines()


def test_its_lines_are_those_of_the_text_in_any_number_of_parts(mono: Path, text: Path) -> None:
    dataset = Dataset.load(mono)
    assert dataset.is_monolingual
    assert (dataset.source_language, dataset.target_language) == ("en", "en")
    read = [" ".join(line.split()) for line in (text / "in.en").read_text().splitlines()]
    filled = [line for line in read if line]
    spelled = [line for line in filled if UNK_ID not in dataset.tokenizer.encode_source([line])[0]]
    unknown = len(filled) - len(spelled)
    assert unknown
    assert dataset.index.dropped == {"empty": 2, "too long": 0, "unknown pieces": unknown, "duplicate": 1}
    assert sorted(lines_of(mono)) == sorted(set(spelled))
    for number in (2, 3, 1):
        prepare.run(section(text, "parts"), part=Part(number, 3))
    prepare.run(section(text, "parts"), merge=True)
    same = {path.name: path.read_bytes() for path in (text / "parts").iterdir()}
    assert same == {path.name: path.read_bytes() for path in mono.iterdir()}
    reader = DatasetReader(mono)
    reader.skip(37)
    assert reader.take(20).decode().splitlines() == lines_of(mono)[37:57]


def test_it_is_translated_and_joined_with_its_translations(
    run: str, translate: Translate, mono: Path, tmp_path: Path
) -> None:
    (tmp_path / "plain.en").write_bytes(DatasetReader(mono).take(10_000))
    for source, output in ((str(mono), "of-dataset"), ("plain.en", "of-file")):
        given = [run, "-i", source, "-o", output, "--chunk-lines", "50"]
        assert [translate(*given, *which) for which in (["--part", "2/2"], ["--part", "1/2"], ["--merge"])] == [0] * 3
    translations = (tmp_path / "of-dataset" / "translations.txt").read_bytes()
    assert translations == (tmp_path / "of-file" / "translations.txt").read_bytes()
    assert translate(run, "-i", str(mono), "-o", "lines") == 0
    assert (tmp_path / "lines").read_bytes() == translations

    tokenizer = TokenizerSection(path=str(mono))
    joined = PrepareSection(
        output=str(tmp_path / "joined"),
        root=str(tmp_path),
        train=CorpusFiles(source=[str(mono)], translations="of-dataset"),
        tokenizer=tokenizer,
        max_unknown=1,
    )
    plain = CorpusFiles(source=["plain.en"], target=["of-dataset/translations.txt"])
    prepare.run(joined)
    prepare.run(dataclasses.replace(joined, output=str(tmp_path / "plain"), train=plain))
    shards = [{p.name: p.read_bytes() for p in (tmp_path / name).glob("*.tar")} for name in ("joined", "plain")]
    assert shards[0] == shards[1] != {}


def test_it_is_no_training_data(mono: Path) -> None:
    config = RunConfig(prepare=PrepareSection(output=str(mono)))
    with pytest.raises(UserError, match="is monolingual; translate it"):
        open_datasets(config)


def test_what_has_two_sides_is_refused() -> None:
    given = PrepareSection(
        monolingual=True,
        train=CorpusFiles(source=["a"], target=["b"]),
        cleaning=CleaningSection(identical="drop"),
    )
    problems = list(given.problems())
    assert [problem.partition(":")[0] for problem in problems] == ["train.target", "cleaning.identical"]
    [problem] = PrepareSection(train=CorpusFiles(source=["a"])).problems()
    assert problem == "train.source: 1 files, target: 0 files; both need the same number, or set monolingual=true"
