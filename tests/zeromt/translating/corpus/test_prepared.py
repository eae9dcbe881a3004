"""`prepare.train.translations`: a corpus and its translations become a dataset, and never a line beside another's."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import zstandard

from configs import CorpusFiles, PrepareSection, TokenizerSection, UserError
from data_pipeline.preparation import prepare
from data_pipeline.preparation.raw.lines import side_file
from data_pipeline.prepared.dataset import Dataset
from tests.zeromt.translating.corpus.conftest import translating, write_lines


@pytest.fixture(scope="module")
def whole(run: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With two candidates of each line; only the best is in `out/translations.txt`. Not to be written to."""
    root = tmp_path_factory.mktemp("translated")
    assert write_lines(root)[6].startswith("word")  # a hole
    given = [run, "-i", "in.en", "-o", "out", "--chunk-lines", "7", "--candidates", "2", "--beam", "2"]
    with pytest.MonkeyPatch.context() as patch:
        translate = translating(patch, root)
        assert translate(*given, "--part", "1/1") == translate(*given, "--merge") == 0
        assert translate(*given, "--merge", "--choose", "all", "--to", "two.txt.zst") == 0
    return root


@pytest.fixture
def translated(whole: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(whole, tmp_path, dirs_exist_ok=True))


def section(root: Path, run: str, output: str, train: CorpusFiles) -> PrepareSection:
    tokenizer = TokenizerSection(path=str(next((Path(run) / "checkpoints").glob("step-*"))))
    return PrepareSection(output=str(root / output), root=str(root), train=train, tokenizer=tokenizer)


def shards(root: Path, name: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / name).iterdir() if path.suffix != ".json"}


@pytest.mark.parametrize("side", ["source", "target"])
def test_the_pairs_are_those_of_two_plain_files(translated: Path, run: str, side: str) -> None:
    other = "target" if side == "source" else "source"
    given: dict[str, Any] = {side: ["in.en"]}
    by_translations = CorpusFiles(**given, translations="out")
    plain = CorpusFiles(**given, **{other: ["out/translations.txt"]})  # type: ignore[arg-type]
    for name, train in (("joined", by_translations), ("plain", plain)):
        prepare.run(section(translated, run, name, train))
    assert shards(translated, "joined") == shards(translated, "plain")
    kept = Dataset.load(translated / "joined").index
    assert kept.dropped["empty"] == 3  # two blank lines and the hole
    assert kept.recipe["forms"]["train"]["form"] == "translations"


def test_further_candidates_stand_beside_their_line(translated: Path, run: str) -> None:
    prepare.run(section(translated, run, "all", CorpusFiles(source=["in.en"], translations="two.txt.zst")))
    assert Dataset.load(translated / "all").num_pairs > 24


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda en, out: en.write_text(en.read_text().replace("\n", "\nNew.\n", 1)), "in.en: line 2: is not the line"),
        (lambda en, out: en.write_text("".join(en.read_text().splitlines(keepends=True)[:-1])), "ends before line 24"),
        (lambda en, out: en.write_text(en.read_text() + "New.\n"), "in.en: line 25: has no translation"),
        (lambda en, out: out.write_text("".join(out.read_text().splitlines(keepends=True)[:-1])), "ends before the tr"),
        (lambda en, out: out.write_text(out.read_text() + "New.\n"), "has more lines than translations.side"),
        (lambda en, out: side_file(out).write_bytes(zstandard.compress(en.read_bytes())), "is no side file"),
    ],
)
def test_another_text_is_refused(translated: Path, run: str, break_it: object, message: str) -> None:
    break_it(translated / "in.en", translated / "out" / "translations.txt")  # type: ignore[operator]
    with pytest.raises(UserError, match=message):
        prepare.run(section(translated, run, "x", CorpusFiles(source=["in.en"], translations="out")))


def test_one_side_is_given() -> None:
    [problem] = CorpusFiles(source=["a"], target=["b"], translations="out").problems()
    assert problem.startswith("translations: given with both of source and target, or none")
