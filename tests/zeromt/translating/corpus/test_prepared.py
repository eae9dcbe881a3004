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
from tests.conftest import read_pairs
from tests.forked import Forked
from tests.small import small_runs
from tests.zeromt.translating.corpus.conftest import translating, write_lines

GIVEN = ("-i", "in.en", "-o", "out", "--chunk-lines", "7", "--candidates", "3", "--beam", "3")


@pytest.fixture(scope="module")
def whole(run: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With three candidates of each line; only the best is in `out/translations.txt`. Not to be written to."""
    root = tmp_path_factory.mktemp("translated")
    assert write_lines(root)[6].startswith("word")  # a hole
    with pytest.MonkeyPatch.context() as patch:
        translate = translating(patch, root)
        assert translate(run, *GIVEN, "--part", "1/1") == translate(run, *GIVEN, "--merge") == 0
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


def test_several_candidates_of_a_line_are_pairs_that_real_ones_are_mixed_with(
    translated: Path, run: str, forked: Forked
) -> None:
    """Two translations of each source (arXiv:2507.21568); a mixture with real pairs by weights, then these alone."""
    with pytest.MonkeyPatch.context() as patch:
        assert translating(patch, translated)(run, *GIVEN, "--merge", "--choose", "2", "--to", "two.txt.zst") == 0
    prepare.run(section(translated, run, "distilled", CorpusFiles(source=["in.en"], translations="two.txt.zst")))
    distilled, real = (Dataset.load(folder) for folder in (translated / "distilled", small_runs() / "dataset"))
    assert distilled.num_pairs == 2 * (24 - 3 - 1)
    assert (distilled.index.dropped["empty"], distilled.index.dropped["too long"]) == (3, 2)  # both of the long line
    shutil.copytree(small_runs(), translated / "place")
    mixture = f"[{{path: dataset, weight: 0.3}}, {{path: {translated / 'distilled'}, weight: 0.7}}]"
    phases = (
        f"[{{name: both, until: {{updates: 3}}, datasets: {mixture}}}, {{name: real, datasets: [{{path: dataset}}]}}]"
    )
    settings = ("name=student", f"phases={phases}", "training.max_updates=5", "training.record_pairs=true")
    done = forked.trainer(1, "small.yaml", *settings, "evaluation.every_updates=0", cwd=translated / "place")
    assert done.code == 0, done.err
    numbers: dict[bool, list[int]] = {True: [], False: []}
    for (step, _), pairs in read_pairs(translated / "place" / "runs" / "student").items():
        numbers[step > 3] += pairs
    assert max(numbers[True]) < real.num_pairs <= max(numbers[False])
    fraction = sum(number >= real.num_pairs for number in numbers[False]) / len(numbers[False])
    assert fraction == pytest.approx(0.7, abs=0.1)


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
