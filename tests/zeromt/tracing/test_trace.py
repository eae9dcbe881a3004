"""`zeromt trace`: every pair of a corpus of translations, against what the test finds in the files by itself."""

import gzip
import json
import shutil
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from data_pipeline.prepared.dataset import Dataset
from tests.conftest import Refused
from tests.data_pipeline.preparation.test_raw_places import texts
from tests.small import FILES
from zeromt.cli.main import main

PROGRAM = """
import json, sys

for text in sys.stdin:
    line = json.loads(text)
    best = {"text": line["source"].upper(), "score": -1.5}
    print(json.dumps({"id": line["id"], "candidates": [{"text": "second " + line["source"], "score": -2.5}, best]}),
          flush=True)
"""
QUALITY = """
import sys

for line in sys.stdin:
    print(int(line.split("\\t")[1].isupper()))
"""
MONO = """
prepare:
  output: mono
  source_language: en
  monolingual: true
  train: {source: [raw/a.en, raw/b.en.gz]}
  tokenizer: {vocab_size: 400, threads: 1}
  cleaning: {normalization: nfc, control_characters: remove, duplicates: drop, max_characters: 200}
  record_places: true
  pairs_per_block: 16
"""
FINAL = """
prepare:
  output: final
  source_language: en
  target_language: fr
  train: {source: [mono], translations: out}
  tokenizer: {vocab_size: 500, threads: 1}
  filters: [{kind: max_characters, limit: 150}]
  record_places: true
  pairs_per_block: 16
"""
TRANSLATE = ("translate", "--engine", "engine.yaml", "--candidates", "2", "--chunk-lines", "16")
BY = ("--quality", f"{sys.executable} quality.py")


def words(text: str) -> str:
    """A text as the tokenizer's normalisation leaves it."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text in two files, its dataset `mono`, translations of this in `out`, and the dataset `final` of both."""
    root = tmp_path_factory.mktemp("trace")
    lines = (FILES / "corpus" / "a.en").read_text().splitlines()[:130]
    lines[3], lines[8] = "", "Une fe\u0301e\x07 \u200bdances."
    (root / "raw").mkdir()
    (root / "raw" / "a.en").write_text("\ufeff" + "".join(f"{line}\n" for line in lines[:70]))
    (root / "raw" / "b.en.gz").write_bytes(gzip.compress("".join(f"{one}\n" for one in lines[60:]).encode()))
    (root / "program.py").write_text(PROGRAM)
    (root / "quality.py").write_text(QUALITY)
    engine = {"kind": "command", "command": [sys.executable, "program.py"], "name": "upper", "prompt": None}
    (root / "engine.yaml").write_text(json.dumps(engine))
    (root / "mono.yaml").write_text(MONO)
    (root / "final.yaml").write_text(FINAL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainer.ranks.process.tune_process", lambda: None)
        patch.chdir(root)
        assert main(["prepare", "mono.yaml"]) == 0
        for how in (["--part", "1/1"], ["--merge"]):
            assert main([*TRANSLATE, *BY, "-i", "mono", "-o", "out", *how]) == 0
        assert main(["prepare", "final.yaml"]) == 0
    return root


@pytest.fixture
def corpus(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, which is the current folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    for path in (*tmp_path.glob("*/origin.json"), tmp_path / "out" / "job.json"):
        path.write_text(path.read_text().replace(str(made), str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trace(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    capsys.readouterr()
    code = main(["trace", *arguments, "--json"])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def raw_lines(root: Path) -> dict[str, tuple[str, int, str]]:
    """Where a text stands first, and how; by what the tokenizer leaves of it."""
    found: dict[str, tuple[str, int, str]] = {}
    for name in ("raw/a.en", "raw/b.en.gz"):
        content = (root / name).read_bytes()
        text = (gzip.decompress(content) if name.endswith(".gz") else content).decode().removeprefix("\ufeff")
        for number, line in enumerate(text.split("\n")[:-1], start=1):
            cleaned = line.replace("\x07", "").replace("\u200b", "")
            found.setdefault(words(cleaned), (name, number, line))
    return found


def test_every_pair_leads_to_its_line_and_its_candidates(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw, final = raw_lines(corpus), texts(Dataset.load("final"))
    merged = Path("out/translations.txt").read_text().split("\n")
    assert len(final) > 100
    for pair, (source, target) in enumerate(final):
        code, [chain] = trace(capsys, "final", str(pair))
        assert (code, chain["source"], chain["target"], chain["problems"]) == (0, source, target, [])
        [translation] = chain["made_of"]
        assert words(merged[translation["line"] - 1]) == words(target)
        assert translation["engine"]["name"] == "upper"
        shown = [(one["chosen"], words(one["text"]), one["score"]) for one in translation["candidates"]]
        assert shown == [(False, f"second {source}", -2.5), (True, words(source.upper()), -1.5)]
        assert [next(v for k, v in one.items() if "quality-" in k) for one in translation["candidates"]] == [0, 1]
        [mono] = translation["made_of"]
        assert (mono["where"], mono["source"]) == (f"mono: pair {translation['of_line'] - 1}", source)
        assert mono["cleaning"]["normalization"] == "nfc"
        [text] = mono["made_of"]
        name, number, line = raw[source]
        assert (text["where"], text["line"], text["source"]) == (f"{name}: line {number}", number, line)


def test_a_text_is_found_on_either_side(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = texts(Dataset.load("final"))[7]
    for text in (source, target):
        assert any(chain["where"] == "final: pair 7" for chain in trace(capsys, "final", text)[1])
    [name, number, line] = raw_lines(corpus)[source]
    _, [chain] = trace(capsys, "mono", line)
    assert chain["made_of"][0]["where"] == f"{name}: line {number}"
    for text in (source, source.upper()):
        _, [chain] = trace(capsys, "out", text)
        assert chain["made_of"][0]["made_of"][0]["where"] == f"{name}: line {number}"
    assert main(["trace", "final", "7"]) == 0
    shown = capsys.readouterr().out
    assert f"{name}: line {number}\n" in shown
    assert all(len(line) == len(line.rstrip("\x07")) for line in shown.splitlines())


def test_a_merge_elsewhere_with_all_candidates(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    merge = [*TRANSLATE, "-i", "mono", "-o", "out", "--merge", "--choose", "all", "--to", "all.txt.zst"]
    assert main(merge) == 0
    settings = ["prepare.output=all", "prepare.train={source: [mono], translations: all.txt.zst}", "prepare.filters=[]"]
    assert main(["prepare", "final.yaml", *settings]) == 0
    pairs = texts(Dataset.load("all"))
    assert len(pairs) == 2 * Dataset.load("mono").num_pairs
    for pair, (source, target) in list(enumerate(pairs))[::9]:
        code, [chain] = trace(capsys, "all", str(pair), "--translated", "out")
        [translation] = chain["made_of"]
        assert (code, words(translation["text"])) == (0, words(target))
        assert [words(one["text"]) for one in translation["candidates"] if one["chosen"]] == [words(target)]
        assert translation["made_of"][0]["source"] == source
    code, [chain] = trace(capsys, "all", "0")
    assert code == 1
    assert chain["made_of"][0]["problems"][0].startswith("its candidates: the folder")


def test_translations_that_are_the_source_behind_tags(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = "prepare.train={source: [], target: [mono], translations: out}"
    tags = ["prepare.tokenizer.tags=['>>eng<<', '>>fra<<']", "prepare.tag_both_sides=true"]
    assert main(["prepare", "final.yaml", "prepare.output=back", train, *tags]) == 0
    pairs = texts(Dataset.load("back"))
    for pair, (source, target) in list(enumerate(pairs))[::9]:
        code, [chain] = trace(capsys, "back", str(pair))
        assert (code, chain["source"]) == (0, source)
        [translation] = chain["made_of"]
        assert words(translation["text"]) == source.removeprefix(">>eng<< ")
        assert target.endswith(translation["made_of"][0]["source"])
        _, chains = trace(capsys, "back", translation["made_of"][0]["source"])
        assert chain in chains


def test_several_files_that_were_translated(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [*TRANSLATE, "-o", "two", "-i", "raw/a.en", "-i", "raw/b.en.gz"]
    assert main([*given, "--part", "1/1"]) == main([*given, "--merge"]) == 0
    lines = [*Path("raw/a.en").read_text().split("\n")[:-1]]
    lines += gzip.decompress(Path("raw/b.en.gz").read_bytes()).decode().split("\n")[:-1]
    for number in (1, 2, 9, 70, 71, len(lines)):
        code, [chain] = trace(capsys, "two", str(number))
        name, place = ("raw/a.en", number) if number <= 70 else ("raw/b.en.gz", number - 70)
        assert (code, chain["made_of"][0]["where"]) == (0, f"{name}: line {place}")
        assert chain["made_of"][0]["source"] == lines[number - 1].removeprefix("\ufeff")


def upper(path: Path) -> None:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    content = content.upper()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def test_what_is_broken_is_named(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def problems(link: dict[str, Any]) -> list[str]:
        return [*link["problems"], *(one for below in link["made_of"] for one in problems(below))]

    for path in (corpus / "raw").iterdir():
        upper(path)
    code, [chain] = trace(capsys, "final", "0")
    assert code == 1
    [said] = problems(chain)
    assert said.startswith("raw/")
    assert said.endswith("the source is not what stands there")
    shutil.copytree("mono", "kept")
    shutil.rmtree("mono")
    shutil.copytree("final", "mono")
    _, [chain] = trace(capsys, "final", "0")
    assert "leads back to itself" in problems(chain)
    shutil.rmtree("mono")
    shutil.move("kept", "mono")
    shutil.rmtree("raw")
    shutil.rmtree("out/chunks")
    code, [chain] = trace(capsys, "final", "0")
    assert [one.partition(": ")[0] for one in problems(chain)] == ["not found any more", "not found any more"]
    Path("out/translations.txt").write_text(Path("out/translations.txt").read_text().replace("E", "F"))
    _, [chain] = trace(capsys, "final", "0")
    assert any(one.endswith("the target is not what stands there") for one in problems(chain))
    shutil.move("mono", "moved")
    shutil.move("out/translations.txt", "gone")
    code, [chain] = trace(capsys, "final", "0")
    assert (code, problems(chain)) == (1, [f"not found any more: {corpus}/out/translations.txt"])


def test_paths_are_found_from_the_folder_of_then(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, [chain] = trace(capsys, str(made / "final"), "3")
    assert (code, chain["made_of"][0]["where"].startswith(str(made / "out"))) == (0, True)


def test_bad_arguments(corpus: Path, refused: Refused) -> None:
    number = Dataset.load("final").num_pairs
    assert f"LINE: {number}: final has the pairs 0 to {number - 1}" in refused("trace", "final", str(number))
    assert "LINE: 'no such line'" in refused("trace", "final", "no such line")
    assert "LINE: 0; lines of a merged file" in refused("trace", "out", "0")
    assert "has no line 1000;" in refused("trace", "out", "1000")
    assert "is no dataset, and no merged file" in refused("trace", "raw/a.en", "1")


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "[]",
        "{}",
        '{"folder": 1, "root": {}, "train": []}',
        '{"folder": "/", "root": ".", "train": {"tsv": 3}}',
        '{"folder": "/", "root": ".", "train": {}}',
        '{"folder": "/", "root": ".", "train": {"source": ["."], "target": ["."]}}',
        '{"folder": "/", "root": ".", "train": {"source": ["/dev/zero"], "target": ["/dev/zero"]}}',
        '{"folder": "/", "root": ".", "train": {"source": ["mono"], "target": [], "translations": "mono"}}',
    ],
)
def test_what_a_stranger_says_of_the_origin(origin: str, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("final/origin.json").write_text(origin)
    code, [chain] = trace(capsys, "final", "0")
    assert code == 1
    assert not chain["made_of"] or not all(link["what"] == "text" and "source" in link for link in chain["made_of"])


@pytest.mark.parametrize("content", ["x", "{}", '{"line": 1}', '{"line": "x", "source": 3}', '{"line": 1e400}', "[]"])
def test_what_a_stranger_says_of_translations(content: str, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import zstandard

    head = '{"chunk": 10000000000, "first": -5, "identity": 3, "engine": []}'
    for text in (f"{content}\n" * 200, f"{head}\n" + f"{content}\n" * 200):
        Path("out/translations.side.jsonl.zst").write_bytes(zstandard.compress(text.encode()))
        assert trace(capsys, "final", "0")[0] == 1


FORMS: dict[str, Any] = {
    "text": ({"source": ["0.en.gz", "1.en.gz"], "target": ["0.fr.gz", "1.fr.gz"]}, 0),
    "tsv": ({"tsv": ["0.tsv", "1.tsv"], "source_field": "en", "target_field": "fr", "scores": {"laser": "laser"}}, 1),
    "jsonl": ({"jsonl": ["0.jsonl.zst", "1.jsonl.zst"], "source_field": "t.en", "target_field": "t.fr"}, 0),
    "parquet": ({"parquet": ["0.parquet", "1.parquet"], "source_field": "en", "target_field": "fr"}, 0),
}


def write_form(name: str, number: int, pairs: list[tuple[str, str]]) -> None:
    """A file, or two, of a form."""
    if name == "text":
        for side, code in enumerate(("en", "fr")):
            content = "".join(f"{pair[side]}\n" for pair in pairs).encode()
            Path(f"{number}.{code}.gz").write_bytes(gzip.compress(content))
    elif name == "tsv":
        rows = [f"0.{row}\t{target}\t{source}" for row, (source, target) in enumerate(pairs)]
        Path(f"{number}.tsv").write_text("\n".join(["laser\tfr\ten", *rows]) + "\n")
    elif name == "jsonl":
        import zstandard

        rows = [json.dumps({"t": {"en": source, "fr": target}}) for source, target in pairs]
        Path(f"{number}.jsonl.zst").write_bytes(zstandard.compress("".join(f"{row}\n" for row in rows).encode()))
    else:
        pyarrow = pytest.importorskip("pyarrow")
        table = pyarrow.table({"en": [source for source, _ in pairs], "fr": [target for _, target in pairs]})
        pytest.importorskip("pyarrow.parquet").write_table(table, f"{number}.parquet", row_group_size=50)


@pytest.mark.parametrize("name", FORMS)
def test_other_kinds_of_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    every = [[(f"The cat {n} of {file}.", f"Le chat {n} de {file}.") for n in range(150)] for file in (0, 1)]
    for number, pairs in enumerate(every):
        write_form(name, number, pairs)
    train, head = FORMS[name]
    tree = {"output": "data", "source_language": "en", "target_language": "fr", "train": train, "record_places": True}
    tokenizer = {"vocab_size": 100, "threads": 1, "tags": [">>fra<<"]}
    Path("c.yaml").write_text(json.dumps({"prepare": {**tree, "target_tag": ">>fra<<", "tokenizer": tokenizer}}))
    assert main(["prepare", "c.yaml"]) == 0
    for pair, (source, _) in list(enumerate(texts(Dataset.load("data"))))[::13]:
        code, [chain] = trace(capsys, "data", str(pair))
        _, _, row, _, file = source.rstrip(".").split()[-5:]
        [text] = chain["made_of"]
        assert (code, text["line"]) == (0, int(row) + 1 + head)
        assert text["where"].startswith(f"{file}.")
        assert (text["source"], text["target"]) == every[int(file)][int(row)]
        if "scores" in train:
            assert chain["scores"]["laser"]["value"] == pytest.approx(float(f"0.{row}"))
