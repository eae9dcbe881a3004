"""What YAML 1.2 and settings come to: lists, sections, words and numbers, and slips that people make."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from configs import CorpusFiles, RunConfig, TokenizerSection, UserError, load_run

DATASETS = "stream: {datasets: [{path: a, weight: 1}, {path: b, weight: 1}]}\n"
LAUGHS = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}]\n" for a, b in itertools.pairwise("abcdefghi"))
FILES = "prepare: {train: {source: [a], target: [b]}}\n"


def load(folder: Path, text: str | bytes, *overrides: str) -> RunConfig:
    path = folder / "run.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_run(str(path), overrides)


def refusal(folder: Path, text: str | bytes, *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        load(folder, text, *overrides)
    return str(caught.value)


@pytest.mark.parametrize("section", ["prepare", "prepare.train", "loss", "engine.zero_optimization"])
@pytest.mark.parametrize("value", ["[{a: 1}]", "null", "text"])
@pytest.mark.parametrize("below", ["preset: modern\n", "{x: 1}"])
def test_section_that_is_none(section: str, value: str, below: str, tmp_path: Path) -> None:
    """In place of nothing, of what a preset brings, and of a section of the file."""
    text = below
    if below.startswith("{"):
        text = "\n".join(f"{'  ' * n}{key}:" for n, key in enumerate(section.split("."))) + f" {below}\n"
    assert refusal(tmp_path, text, f"{section}={value}").startswith((f"{section}: ", f"{section}.kind: "))


def test_an_empty_section_of_a_setting_is_without_what_the_file_has(tmp_path: Path) -> None:
    """`prepare.valid={}`, as a shipped configuration instructs; in a file it changes nothing, as ever."""
    more = "valid: {source: [c], target: [d]}, tokenizer: {vocab_size: 99, kind: unigram}}"
    text = f"{FILES.strip().removesuffix('}')}, {more}\n"
    section = load(tmp_path, text, "prepare.valid={}").prepare
    assert section.valid == CorpusFiles()
    assert (section.train.source, section.tokenizer.vocab_size) == (["a"], 99)
    assert load(
        tmp_path, text, "prepare.valid={}", "prepare.valid.source=[e]", "prepare.valid.target=[f]"
    ).prepare.valid == (CorpusFiles(source=["e"], target=["f"]))
    assert load(tmp_path, text, "prepare.tokenizer={}").prepare.tokenizer == TokenizerSection()
    assert load(tmp_path, "preset: modern\nmodel: {}\n", "model={}") == load(tmp_path, "preset: modern\n")
    assert not load(tmp_path, text, "prepare.test={}").prepare.valid.is_empty
    assert refusal(tmp_path, text, "prepare.validd={}").startswith("prepare.validd: ")


@pytest.mark.parametrize(
    ("text", "overrides", "paths", "weights"),
    [
        (DATASETS, ["stream.datasets[1].weight=2"], ["a", "b"], [1, 2]),
        (DATASETS, ["stream.datasets.1.weight=2"], ["a", "b"], [1, 2]),
        (DATASETS, ["stream.datasets[0]={path: c}"], ["c", "b"], [1, 1]),
        (DATASETS, ["stream.datasets[2]={path: c, weight: 3}"], ["a", "b", "c"], [1, 1, 3]),
        (DATASETS, ["stream.datasets[2].path=c", "stream.datasets[2].weight=3"], ["a", "b", "c"], [1, 1, 3]),
        ("", ["stream.datasets[0].path=no"], ["no"], [None]),
    ],
)
def test_item_of_a_list_is_set(
    text: str, overrides: Sequence[str], paths: list[str], weights: list[float | None], tmp_path: Path
) -> None:
    datasets = load(tmp_path, text, *overrides).stream.datasets
    assert ([d.path for d in datasets], [d.weight for d in datasets]) == (paths, weights)


@pytest.mark.parametrize("item", ["stream.datasets[3].path=c", "optimizer..lr=1", "a[=1", "=3", "[0]=1"])
def test_item_that_is_none(item: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, DATASETS + FILES, item).startswith(f"override: {item!r}")


@pytest.mark.parametrize("word", ["no", "No", "NO", "off", "on", "yes", "Yes"])
def test_word_is_text_where_text_is_wanted(word: str, tmp_path: Path) -> None:
    """Norwegian, and a file of that name; and it stays what it is once it was written to the run."""
    text = f"name: {word}\nprepare: {{target_language: {word}, train: {{source: [{word}], target: &t [{word}]}}}}\n"
    run = load(tmp_path, text + "optimizer: {lr: 0.5}\n")
    assert (run.name, run.prepare.target_language) == (word, word)
    assert (run.prepare.train.source, run.prepare.train.target) == ([word], [word])
    assert load(tmp_path, "", f"prepare.target_language={word}").prepare.target_language == word


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("training: {max_updates: 8:30}", "training.max_updates: '8:30'; allowed is a whole number"),
        ("training: {<<: {max_minutes: 1:30.5}}", "training.max_minutes: '1:30.5'; allowed is a number"),
        ("name: 1.5", "name: 1.5; allowed is text: put it in quotes, '1.5'"),
        ("name: true", "name: true; allowed is text: put it in quotes, 'true'"),
        ("training: {tensorboard: no}", "training.tensorboard: 'no'; allowed is true or false"),
        (f"seed: {'9' * 5000}", "cannot be read: "),
        ("a: [", "cannot be read: "),
        ("- 1\n- 2\n", "is not a mapping"),
        ("seed: 1\nseed: 2\n", "seed in line 2"),
        ("seed: ${nope}\n", "seed: ${nope}: there is no such key"),
        ("output: ${name}\nname: ${output}\n", "it refers to itself"),
        ("seed: !!python/object/apply:os.system [true]\n", "cannot be read: "),
        ("a: " + "[" * 3000 + "]" * 3000, "cannot be read: "),
        ("a: &a [*a]", "cannot be read: "),
        (LAUGHS, "cannot be read: "),
        ("seed: 1\n---\nseed: 2\n", "cannot be read: "),
        ("optimizer:\n\tlr: 1\n", "a tab in line 2"),
        (b"name: \xff\n", "0xff in position 6"),
        ("name: !!binary aGVsbG8=", "cannot be read: "),
        ("name: !!timestamp 2001-01-01", "cannot be read: "),
        ("? [1]\n: 2", "cannot be read: "),
        ("5", "is not a mapping"),
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
def test_trap_is_one_line(text: str | bytes, named: str, tmp_path: Path) -> None:
    message = refusal(tmp_path, text)
    assert named in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "seed"),
    [
        ("seed: 0x10", 16), ("seed: 1_000", 1000), ("seed: 0o11", 9), ("seed: 00", 0), ("seed: 017", 17),
        ("seed:\t3", 3), ("\ufeffseed: 3", 3), ("seed: 3".encode("utf-16"), 3), ("---\n...", 1),
        ("seed: 9223372036854775807", 2**63 - 1),
    ],
)  # fmt: skip
def test_valid_stays_what_it_was(text: str | bytes, seed: int, tmp_path: Path) -> None:
    assert load(tmp_path, text).seed == seed
