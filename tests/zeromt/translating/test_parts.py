"""A corpus in parts is what it is in one; every line stays beside its source, whatever was killed, moved or changed."""

import gzip
import itertools
import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from tests.conftest import Refused, Start, zeromt
from tests.waiting import wait_until
from tests.zeromt.translating.conftest import Translate, translating, write_lines
from zeromt.cli.main import main
from zeromt.translator.mbr import expected_utilities
from zeromt.translator.splitting import join, parts_of

SEARCH = ("--max-length-ratio", "1", "--max-length-extra", "2", "--chunk-lines", "4")


def chunk(number: int, out: str = "out") -> Path:
    return Path(out) / "chunks" / "000" / f"{number:06d}.jsonl.zst"


def lines_of(side: str = "", out: str = "out/translations") -> list[str]:
    return Path(f"{out}{side}.txt").read_text().split("\n")[:-1]


def made(translate: Translate, run: str, out: str, parts: int, *more: str) -> list[bytes]:
    """Translations, sources and scores, made in so many parts, the last one first."""
    words = (run, "-i", "in.en", "-o", out, *SEARCH, *more)
    for number in range(parts, 0, -1):
        assert translate(*words, "--part", f"{number}/{parts}") == 0
    assert translate(*words, "--merge", "--to", f"{out}.txt") == 0
    return [Path(f"{out}{side}.txt").read_bytes() for side in ("", ".source", ".scores")]


def test_any_number_of_parts_makes_the_same_bytes(
    translate: Translate, run: str, lines: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    sampling = ("--sample", "--top-k", "5", "--candidates", "2")
    one = made(translate, run, "one", 1, *sampling)
    said = capfd.readouterr().out.splitlines()[-1]
    assert said.startswith("one.txt: 24 lines of the input, 2 of them blank, 1 without a translation, first line 7 (1 ")
    assert made(translate, run, "three", 3, *sampling) == one
    assert made(translate, run, "two", 1, *sampling, "--processes", "2") == one
    assert lines_of(".source", "one") == lines
    blank = [number for number, text in enumerate(lines_of("", "one")) if not text]
    assert blank == [number for number, score in enumerate(lines_of(".scores", "one")) if not score] == [3, 6, 9]
    assert all(float(score) < 0 for score in filter(None, lines_of(".scores", "one")))
    assert json.loads(Path("one/job.json").read_text())["engine"]["search"]["sampler"]["top_k"] == 5


def test_files_beside_the_text_do_not_replace_an_input(run: str, tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "x.source.txt").write_text("a\n")
    words = ("translate", run, "-i", "x.source.txt", "-o", "out", "--merge", "--to", "x.txt")
    assert refused(*words).startswith("--to (x.source.txt): ")


def test_files_and_their_compression(translate: Translate, run: str, lines: list[str], tmp_path: Path) -> None:
    whole = "".join(f"{line}\n" for line in lines)
    Path("a.gz").write_bytes(gzip.compress("".join(f"{line}\r\n" for line in lines[:12]).encode()))
    Path("b.zst").write_bytes(zstandard.ZstdCompressor().compress("\n".join(lines[12:]).encode()))
    words = (run, "-i", "a.gz", "-i", "b.zst", "-o", "out", *SEARCH)
    for which in (["--part", "2/2"], ["--part", "1/2"], ["--merge"]):
        assert translate(*words, *which) == 0
    Path("in.en").write_text(whole)
    assert [Path("out/translations.txt").read_bytes(), whole.encode()] == made(translate, run, "plain", 1)[:2]


def test_what_is_chosen_of_the_candidates(translate: Translate, run: str, lines: list[str]) -> None:
    words = (run, "-i", "in.en", "-o", "out", *SEARCH, "--candidates", "3")
    assert translate(*words, "--part", "1/1") == 0
    assert translate(*words, "--merge", "--choose", "all") == 0
    texts = lines_of()
    assert len(texts) == len(lines_of(".scores")) == 3 * 21 + 3
    assert lines_of(".source") == [
        line for number, line in enumerate(lines) for _ in range(1 if number in (3, 6, 9) else 3)
    ]
    assert translate(*words, "--merge", "--choose", "2") == 0
    assert len(lines_of()) == 2 * 21 + 3
    assert translate(*words, "--merge") == 0
    assert lines_of()[0] == texts[0]


def test_killed_at_any_moment_it_goes_on(translate: Translate, run: str, lines: list[str], start: Start) -> None:
    whole = made(translate, run, "whole", 1)
    command = start(*zeromt("translate", run, "-i", "in.en", "-o", "out", *SEARCH, "--part", "1/1"))
    wait_until(lambda: bool(list(Path().glob("out/chunks/000/*.zst"))))
    command.process.send_signal(signal.SIGKILL)
    command.process.wait()
    before = {path.name: path.stat().st_mtime_ns for path in Path().glob("out/chunks/000/0*.zst")}
    assert made(translate, run, "out", 2) == whole
    after = {path.name: path.stat().st_mtime_ns for path in Path().glob("out/chunks/000/0*.zst")}
    assert before.items() <= after.items()


WORDS = ("-i", "in.en", "-o", "out", *SEARCH)


@pytest.fixture(scope="module")
def translated(run: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus that is translated, in one part; not to be written to."""
    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("translated")
        write_lines(root)
        assert translating(patch, root)(run, *WORDS, "--part", "1/1") == 0
    return root


@pytest.fixture
def ready(translated: Path, translate: Translate, run: str, tmp_path: Path) -> Callable[..., str]:
    """The words of a corpus that is translated."""
    shutil.copytree(translated, tmp_path, dirs_exist_ok=True)
    return lambda *more: ["translate", run, *WORDS, *more]  # type: ignore[return-value]


def _repack(number: int, change: Callable[[list[str]], list[str]]) -> None:
    lines = zstandard.ZstdDecompressor().decompressobj().decompress(chunk(number).read_bytes()).decode().splitlines()
    text = "".join(f"{line}\n" for line in change(lines))
    chunk(number).write_bytes(zstandard.ZstdCompressor().compress(text.encode()))


def _change_line() -> None:
    texts = Path("in.en").read_text().split("\n")
    texts[10] = texts[10][::-1]
    Path("in.en").write_text("\n".join(texts))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (
            lambda: _repack(1, lambda lines: lines[1:]),
            "'out/chunks/000/000001.jsonl.zst' has 3 lines for 4 of the input",
        ),
        (lambda: chunk(1).unlink(), "-o: 'out': 1 of 6 chunks are missing, the first is 1; run the parts"),
        (lambda: chunk(4).write_bytes(chunk(4).read_bytes()[:-9]), "'out/chunks/000/000004.jsonl.zst' is corrupt"),
        (_change_line, "sha256: "),
    ],
)
def test_a_merge_refuses_what_does_not_belong_together(
    harm: Callable[[], None], said: str, ready: Callable[..., list[str]], refused: Refused
) -> None:
    harm()
    assert said in refused(*ready("--merge"))
    assert not list(Path("out").glob("translations*"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--beam", "2"], "engine.search.beam: 2, and 'out' was begun with 1"),
        (["--candidates", "2"], "engine.candidates: 2, and 'out' was begun with 1"),
        (["-i", "in.en"], "lines: 48, and 'out' was begun with 24"),
    ],
)
def test_a_part_refuses_what_was_not_begun(
    words: list[str], said: str, ready: Callable[..., list[str]], refused: Refused
) -> None:
    assert said in refused(*ready("--part", "1/2", *words))
    assert main(ready("--part", "1/1", *words, "--replace")) == 0
    assert [path.name.partition("-")[0] for path in Path().glob("out.*")] == ["out.replaced"]


def test_bad_input_is_found_before_the_work(run: str, refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "in.en").write_bytes(b"fine\nd\xe9j\xe0 vu\n")
    words = ("translate", run, "-i", "in.en", "-o", "out")
    assert "in.en: line 2 is not UTF-8" in refused(*words, "--part", "1/2")
    (tmp_path / "in.en").write_text("fine\n")
    assert "'out' has no job.json: nothing was begun there" in refused(*words, "--merge")


def test_status(ready: Callable[..., list[str]], capsys: pytest.CaptureFixture[str], translate: Translate) -> None:
    chunk(2).unlink()
    capsys.readouterr()
    assert main(["status", "out"]) == 0
    said = capsys.readouterr().out
    assert "lines   20 of 24 (83.3%)" in said
    assert "chunks  5 of 6" in said
    assert main(["status", "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 20


def test_splitting() -> None:
    def parts(line: str, tag: str = "", *, paragraphs: bool = False) -> list[str]:
        return parts_of(line, tag, lambda text: len(text) <= 12, paragraphs=paragraphs)

    assert parts("One. Two. Three four! Five") == ["One. Two.", "Three four!", "Five"]
    assert parts("一二三。四五六七八。九十一二三四五六") == ["一二三。四五六七八。", "九十一二三四五六"]
    assert parts("Onetwothreefourfive. Six") == []
    assert parts(">t< One. Two. Three", ">t< ") == [">t< One.", ">t< Two.", ">t< Three"]
    assert parts("One. Two.", paragraphs=True) == ["One.", "Two."]
    assert parts(" ", paragraphs=True) == [" "]
    assert join(["One.", "Two.", ""]) == "One. Two."
    assert join(["一。", "二。"]) == "一。二。"


SAMPLED = ("--sample", "--epsilon", "0.01", "--temperature", "2", "--candidates", "5")


def test_minimum_bayes_risk(translate: Translate, run: str, lines: list[str]) -> None:
    for out, more in (("out", ()), ("ranked", ("--mbr", "chrf"))):
        for which in (("--part", "1/1"), ("--merge", "--choose", "all")):
            assert translate(run, "-i", "in.en", "-o", out, *SEARCH, *SAMPLED, *more, *which) == 0
    for texts, ranked in zip(_by_line(), _by_line("ranked"), strict=True):
        utilities = expected_utilities(texts, "chrf")
        assert sorted(ranked) == sorted(texts)
        assert utilities[texts.index(ranked[0])] == max(utilities)


def _by_line(out: str = "out") -> list[list[str]]:
    """The candidates of each line that has some."""
    pairs = zip(lines_of(".source", f"{out}/translations"), lines_of("", f"{out}/translations"), strict=True)
    groups = itertools.groupby((pair for pair in pairs if pair[1]), lambda pair: pair[0])
    return [[text for _, text in group] for _, group in groups]
