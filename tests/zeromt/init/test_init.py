"""`zeromt init`: what it holds out is in no training pair, what it writes can be prepared, and bad input is refused."""

import gzip
import itertools
import re
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from configs import load_run
from data_pipeline.preparation.readers.lines import Tsv
from data_pipeline.preparation.readers.tmx import Tmx
from data_pipeline.prepared.dataset import Dataset
from tests.conftest import Refused, contents
from tests.zeromt.init import corpora
from zeromt.cli.main import main
from zeromt.init.choices import Machine, choose
from zeromt.init.corpus import CorpusSummary


def same(text: str) -> str:
    """A sentence whatever its case, width and white space, by the test's own rule."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def lines(folder: Path, name: str) -> list[str]:
    return (folder / "my-data" / name).read_text().splitlines()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_no_training_pair_has_a_held_out_sentence(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Though many sentences stand in the corpus again, in capitals and beside another translation."""
    pairs = corpora.bundled(400)
    again = [(source.upper(), pairs[number - 1][1]) for number, (source, _) in enumerate(pairs[:200])]
    files = corpora.two_files(here, [*pairs, *again])
    assert main(["init", *files, "-o", "my.yaml"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("found     600 pairs, en to fr\n")
    assert said.endswith("Next:\n  zeromt prepare my.yaml\n  zeromt launch local my.yaml\n")
    assert main(["prepare", "my.yaml", "prepare.workers=1"]) == 0
    dataset = Dataset.load(here / "data/my")
    held_out = [lines(here, f"{name}.{side}") for name in ("valid", "test") for side in ("en", "fr")]
    assert {len(side) for side in held_out} == {30}
    unique = [same(source) for source, _ in pairs[200:]]
    assert all(same(line) in unique for line in (*held_out[0], *held_out[2])), "those that stand there once"
    decoded: tuple[list[str], list[str]] = ([], [])
    for number in range(dataset.index.blocks):
        block = dataset.read_block(number)
        for side, pieces in enumerate((block.source, block.target)):
            ends = np.cumsum(block.lengths[:, side])[:-1]
            rows = [row.tolist() for row in np.split(pieces, ends)]
            decode = dataset.tokenizer.decode_source if side == 0 else dataset.tokenizer.decode_target
            decoded[side].extend(map(same, decode(rows)))
    assert 0 < len(decoded[0]) <= 600 - 2 * 30
    for side in (0, 1):
        assert {same(line) for texts in held_out[side::2] for line in texts}.isdisjoint(decoded[side])


def test_the_same_bytes_and_nothing_is_overwritten(here: Path, refused: Refused) -> None:
    files = corpora.two_files(here, corpora.bundled(200))
    assert main(["init", *files, "-o", "my.yaml"]) == 0
    first = contents(here)
    assert "-o/--output: my.yaml is there; give another name" in refused("init", *files, "-o", "my.yaml")
    (here / "my.yaml").unlink()
    assert "my-data is there" in refused("init", *files, "-o", "my.yaml")
    shutil.rmtree(here / "my-data")
    assert main(["init", *files, "-o", "my.yaml"]) == 0
    assert contents(here) == first
    lines = (here / "my.yaml").read_text().splitlines()
    assert max(map(len, lines)) <= 120
    for before, line in itertools.pairwise(lines):
        is_setting = re.match(r" {0,2}\w+: ", line)
        assert not is_setting or before.lstrip().startswith("# "), "every setting has its reason"


@pytest.mark.parametrize(("write", "reader"), [(corpora.tsv, Tsv), (corpora.tmx, Tmx)])
def test_one_file_with_both_sides(write: Callable[..., list[str]], reader: type, here: Path) -> None:
    assert main(["init", *write(here, corpora.bundled(200)), "-o", "my.yaml"]) == 0
    prepare = load_run("my.yaml").prepare
    assert (prepare.source_language, prepare.target_language) == ("en", "fr")
    assert type(prepare.train.reader) is reader
    assert main(["prepare", "my.yaml", "prepare.workers=1"]) == 0


def test_no_language_leads_out_of_the_folder(here: Path) -> None:
    files = corpora.two_files(here, corpora.bundled(200))
    assert main(["init", *files, "-o", "my.yaml", "--target-language", "fr/../../x"]) == 0
    assert sorted(path.name for path in here.rglob("*.*")) == [
        "corpus.en", "corpus.fr", "my.yaml", "test.source", "test.target", "valid.source", "valid.target",
    ]  # fmt: skip


def test_names_as_opus_has_them(here: Path) -> None:
    names = ["my corpus.en-fr.en.gz", "my corpus.en-fr.fr.gz"]
    for name, lines_ in zip(names, zip(*corpora.bundled(40), strict=True), strict=True):
        (here / name).write_bytes(gzip.compress("".join(f"{line}\n" for line in lines_).encode()))
    assert main(["init", *names, "-o", "my.yaml"]) == 0
    assert [len(lines(here, f"{name}.fr")) for name in ("valid", "test")] == [2, 2]
    assert main(["prepare", "my.yaml", "prepare.workers=1"]) == 0


@pytest.mark.parametrize(("code", "text"), [("ar", "\u0645\u0631\u062d\u0628\u0627"), ("zh", "\u4f60\u597d\u5440")])
def test_other_scripts(code: str, text: str, here: Path) -> None:
    (here / f"a.{code}").write_text("".join(f"{text}{number}\n" for number in range(300)))
    (here / "a.en").write_text("".join(f"hello {number}\n" for number in range(300)))
    assert main(["init", f"a.{code}", "a.en", "-o", "my.yaml"]) == 0
    assert load_run("my.yaml").prepare.tokenizer.vocabulary == "separate"
    assert main(["prepare", "my.yaml", "prepare.workers=1"]) == 0


FRENCH = "".join(f"Je ne sais pas où est passé le chat numéro {number} de ma voisine.\n" for number in range(200))
ENGLISH = "".join(f"I do not know where the cat number {number} of my neighbour went.\n" for number in range(200))


@pytest.mark.parametrize(
    ("files", "words", "said"),
    [
        ({}, "no.en no.fr", "argument CORPUS: 'no.en': no such file or folder"),
        ({"a.en": ENGLISH, "a.fr": FRENCH + "Encore.\n"}, "a.en a.fr", "200 lines, but 201 in a.fr"),
        ({"a.en": "", "a.fr": FRENCH}, "a.en a.fr", "a.en: is empty"),
        ({"a.en": ENGLISH, "b.en": ENGLISH}, "a.en b.en", "both sides are in one language (en)"),
        ({"a.en": ENGLISH}, "a.en a.en", "give two different text files"),
        ({"a.en": "A dog.\n" * 9, "a.fr": "Un chien.\n" * 9}, "a.en a.fr", "too few to hold some out"),
        ({"a.tsv": "A dog.\tUn chien.\n" * 200}, "a.tsv --source-language en --target-language fr",
         "of 200 pairs only 0 have sentences that stand there once"),
        ({"a.docx": ENGLISH}, "a.docx", "a.docx: line 1 has 1 columns; give a TSV of two"),
        ({"a.en-fr.tsv": "\ufeffSource\ttarget\na\tb\n"}, "a.en-fr.tsv", "line 1 names columns and would be a pair"),
        ({"a.en-fr.tsv": "en\tfr_FR\na\tb\n"}, "a.en-fr.tsv", "line 1 names columns and would be a pair"),
        ({"a.en-fr.tsv": '"a"\t"b"\n' * 30}, "a.en-fr.tsv", "in quotation marks, which are text in a TSV"),
        ({"a.en-fr.tsv": ""}, "a.en-fr.tsv", "is empty; it must have"),
        ({"a.en": "A\0B\n" * 200, "a.fr": FRENCH}, "a.en a.fr", "a.en: line 1 holds a NUL byte"),
        ({"a.en-fr.tsv": "1\t2\n" + "x\n" * 200}, "a.en-fr.tsv", "a.en-fr.tsv: line 2"),
        ({"a": ENGLISH, "b": FRENCH}, "a b", "no name says the source's language"),
        ({"${x}.en": ENGLISH, "x.fr": FRENCH}, "${x}.en x.fr", "'${x}.en': a configuration cannot hold this name"),
        ({"a": "1", "b": "2", "c": "3"}, "a b c", "give two different text files"),
        ({"a.en": ENGLISH, "a.fr": FRENCH}, "a.en a.fr -o a", "-o/--output: a: the run gets its name"),
        ({"a.en": ENGLISH, "a.fr": FRENCH}, "a.en a.fr -o no/a.yaml", "no/a.yaml cannot be written"),
    ],
)  # fmt: skip
def test_bad_input(refused: Refused, tmp_path: Path, files: dict[str, str], words: str, said: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    output = [] if "-o" in words.split() else ["-o", "my.yaml"]
    assert said in refused("init", *words.split(), *output)
    assert not list(tmp_path.glob("my*")), "nothing is left"


@pytest.mark.parametrize(
    ("pairs", "gpus", "model", "tokens", "pieces"),
    [
        (50_000, 0, 256, 2048, 8000),
        (5_000_000, 0, 256, 2048, 8000),
        (50_000, 1, 256, 2048, 8000),
        (500_000, 4, 512, 8192, 16_000),
        (5_000_000, 8, "vaswani_base", 24_576, 32_000),
        (50_000_000, 8, "vaswani_big", 24_576, 32_000),
    ],
)
def test_choices_by_pairs_and_machine(pairs: int, gpus: int, model: object, tokens: int, pieces: int) -> None:
    words = [f"word{number} {number}word" for number in range(40_000)]
    summary = CorpusSummary(num_pairs=pairs, sample=[(word, word) for word in words])
    prepare, sections = choose(summary, ("en", "fr"), Machine(gpus, 4))
    settings = {choice.key: choice.value for choice in (*prepare, *sections)}
    assert settings.get("preset", settings.get("model", {}).get("d_model")) == model
    assert settings["stream"]["micro_batches"] * settings["stream"]["target_tokens"] == pytest.approx(tokens, rel=0.1)
    assert settings["tokenizer"]["vocab_size"] == pieces
    assert ("max_minutes" in settings["training"]) == (not gpus)
    prepare, sections = choose(summary, ("en", "ru"), Machine(gpus, 4))
    settings = {choice.key: choice.value for choice in (*prepare, *sections)}
    assert settings["tokenizer"]["vocabulary"] == "separate"
    assert settings["model"]["tied_embeddings"] == "decoder"
