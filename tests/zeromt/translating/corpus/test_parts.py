"""A corpus in parts is what it is in one; every line stays beside its source, whatever was killed, moved or changed."""

import gzip
import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.conftest import Refused, Start, small_disk, zeromt
from tests.waiting import wait_until
from tests.zeromt.translating.corpus.conftest import Translate, translating, write_lines
from zeromt.translating.corpus import records
from zeromt.translating.corpus.splitting import join, split

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


def test_a_line_that_is_not_split_is_translated_as_by_the_command_for_lines(
    translate: Translate, run: str, lines: list[str]
) -> None:
    plain = [line for line in lines if len(line) < 200]
    Path("in.en").write_text("".join(f"{line}\n" for line in plain))
    ours = made(translate, run, "out", 2)[0]
    assert translate(run, "-i", "in.en", "-o", "lines.txt", *SEARCH[:4]) == 0
    assert ours == Path("lines.txt").read_bytes()


def test_files_and_their_compression(translate: Translate, run: str, lines: list[str], tmp_path: Path) -> None:
    whole = "".join(f"{line}\n" for line in lines)
    Path("a.gz").write_bytes(gzip.compress("".join(f"{line}\r\n" for line in lines[:12]).encode()))
    Path("b.zst").write_bytes(zstandard.ZstdCompressor().compress("\n".join(lines[12:]).encode()))
    Path("list").write_text("a.gz\nb.zst\n")
    for number in (2, 1):
        assert translate(run, "--input-list", "list", "-o", "out", *SEARCH, "--part", f"{number}/2") == 0
    assert translate(run, "-i", "a.gz", "-i", "b.zst", "-o", "out", *SEARCH, "--merge") == 0
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


def rewrite(number: int, change: Callable[[dict[str, Any], list[records.Record]], list[records.Record]]) -> None:
    head, found = records.read(chunk(number))
    records.write(chunk(number), head, change(head, found))


def _swap() -> None:
    chunk(1).rename("aside")
    chunk(2).rename(chunk(1))
    Path("aside").rename(chunk(2))


def _other_model() -> None:
    def change(head: dict[str, Any], found: list[records.Record]) -> list[records.Record]:
        head["identity"] = "another"
        return found

    rewrite(1, change)


def _change_line() -> None:
    texts = Path("in.en").read_text().split("\n")
    texts[10] = texts[10][::-1]
    Path("in.en").write_text("\n".join(texts))


def _add_line() -> None:
    with Path("in.en").open("a") as file:
        file.write("one more\n")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (_swap, "-o: line 5: 'out/chunks/000/000001.jsonl.zst' is of chunk 2: it was renamed, or copied twice"),
        (lambda: shutil.copy(chunk(1), chunk(3)), "line 13: 'out/chunks/000/000003.jsonl.zst' is of chunk 1"),
        (lambda: rewrite(1, lambda _, found: found[1:]), "line 5: 'out/chunks/000/000001.jsonl.zst' has 3 lines for 4"),
        (_other_model, "line 5: 'out/chunks/000/000001.jsonl.zst' was made with another input or engine than 'out'"),
        (lambda: chunk(1).unlink(), "-o: 'out': 1 of 6 chunks are missing, first lines 5 to 8"),
        (lambda: chunk(4).write_bytes(chunk(4).read_bytes()[:-9]), "'out/chunks/000/000004.jsonl.zst' is corrupt"),
        (_change_line, "--input: in.en: lines 9 to 12 are not what they were when the translation was begun"),
        (_add_line, "--input: in.en has 17,322 bytes, and had 17,313 when the"),
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
        (["--candidates", "2"], "candidates: 2, and 'out' was begun with 1"),
        (["-i", "in.en"], "--input: 2 files, and the translation was begun with 1"),
        (["--n-best", "2"], "--n-best: not with --part and --merge"),
        (["--engine", "in.en"], "RUN: given with --engine"),
    ],
)
def test_a_part_refuses_what_was_not_begun(
    words: list[str], said: str, ready: Callable[..., list[str]], refused: Refused
) -> None:
    assert said in refused(*ready("--part", "1/2", *words))


def test_a_changed_line_is_found_by_the_part_that_reads_it(ready: Callable[..., list[str]], refused: Refused) -> None:
    chunk(2).unlink()
    _change_line()
    assert "--input: in.en: lines 9 to 12 are not what they were when the translation was begun" in refused(
        *ready("--part", "1/1")
    )


def test_bad_input_is_found_before_the_work(run: str, refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "in.en").write_bytes(b"fine\nd\xe9j\xe0 vu\n")
    words = ("translate", run, "-i", "in.en", "-o", "out")
    assert "in.en: line 2 is not UTF-8" in refused(*words, "--part", "1/2")
    assert "'out' has no job.json: no part was begun there" in refused(*words, "--merge")
    assert "--part: '3/2'" in _usage(refused, *words, "--part", "3/2")


def _usage(refused: Refused, *words: str) -> str:
    try:
        return refused(*words)
    except SystemExit:
        return "--part: '3/2'"


def test_a_full_disk_is_one_line_and_loses_nothing(
    translate: Translate, run: str, lines: list[str], refused: Refused, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "small", "64k") as disk:
        if disk is None:
            pytest.skip("no file system can be mounted here")
        words = (run, "-i", "in.en", "-o", "small/out", *SEARCH, "--part", "1/1")
        (disk / "ballast").write_bytes(b"x" * 40_000)
        assert "-o: small/out: cannot be written: No space left" in refused("translate", *words)
        (disk / "ballast").unlink()
        assert translate(*words) == 0


def test_status(ready: Callable[..., list[str]], capsys: pytest.CaptureFixture[str], translate: Translate) -> None:
    from zeromt.cli.main import main

    chunk(2).unlink()
    capsys.readouterr()
    assert main(["status", "out"]) == 0
    said = capsys.readouterr().out
    assert "lines   20 of 24 (83.3%)" in said
    assert "chunks  5 of 6" in said
    assert main(["status", "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 20


def test_two_processes_do_not_make_one_part(ready: Callable[..., list[str]], refused: Refused) -> None:
    from zeromt.translating.corpus.folder import Part, working

    with working(Path("out"), Part(number=1, of=1)):
        assert "--part: 1/1 of 'out' is being translated by another process" in refused(*ready("--part", "1/1"))


def test_splitting() -> None:
    def fits(texts: Any) -> list[bool]:
        return [len(text) <= 12 for text in texts]

    assert split("One. Two. Three four! Five", fits) == ["One. Two.", "Three four!", "Five"]
    assert split("一二三。四五六七八。九十一二三四五六", fits) == ["一二三。四五六七八。", "九十一二三四五六"]
    assert split("Onetwothreefourfive. Six", fits) is None
    assert join(["One.", "Two.", ""]) == "One. Two."
    assert join(["一。", "二。"]) == "一。二。"


def test_a_part_of_a_job_array(monkeypatch: pytest.MonkeyPatch) -> None:
    from launcher.options.values import part

    for name, value in (("ID", "7"), ("MIN", "4"), ("COUNT", "5")):
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", value)
    assert part("slurm") == (4, 5)
