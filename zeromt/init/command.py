"""The command `zeromt init`: looks at a corpus, writes held-out sets and a configuration, and says what it did."""

import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from configs import UserError
from configs.process.files import check_apart, exists, file_in, naming
from configs.process.files.inside import written
from configs.process.gpus import num_gpus
from configs.process.text import visible_name
from launcher.machine.cores import num_cores
from zeromt.init.choices import Choice, Machine, choose
from zeromt.init.corpus import CODE, Corpus, CorpusSummary, find_corpus, summarise

WIDTH = 100
"""Of a setting; a longer one takes several lines."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*\.ya?ml")
_OUTPUT = "-o/--output"


def run(
    *,
    corpus: Sequence[str],
    output: str,
    source_language: str | None,
    target_language: str | None,
) -> int:
    """Write a configuration for a corpus, and its held-out sets.

    Args:
        corpus: two files, or one TSV or TMX.
        output: the configuration to write.
        source_language, target_language: codes; None: as the names or the file say.

    Raises:
        UserError: the corpus cannot be used as it is, or the output is there or cannot be written.
    """
    folder = _folder_beside(output)
    inputs = {f"CORPUS {number}": path for number, path in enumerate(corpus, 1)}
    check_apart(inputs, {_OUTPUT: output, f"{_OUTPUT} (held-out sets)": str(folder)})
    given = find_corpus(corpus, source_language, target_language)
    summary, machine = summarise(given), Machine(num_gpus(os.environ), num_cores())
    is_plain = all(map(CODE.fullmatch, given.languages))  # nothing else becomes part of a path
    endings = given.languages if is_plain else ("source", "target")
    sets = {"valid": summary.valid, "test": summary.test}
    with naming(_OUTPUT):
        paths = {name: [str(file_in(folder, f"{name}.{ending}")) for ending in endings] for name in sets}
    prepare, sections = choose(summary, given.languages, machine)
    with written(output, _OUTPUT) as file:
        folder.mkdir()
        for name, pairs in sets.items():
            with ExitStack() as stack:
                files = [stack.enter_context(written(path, _OUTPUT)) for path in paths[name]]
                for pair in pairs:
                    for side, line in zip(files, pair, strict=True):
                        side.write(f"{line}\n")
        shown = " ".join(map(visible_name, corpus))
        file.write(
            f"# Written by `zeromt init {shown}`; docs/training.md has the rules. What is not set has a default.\n"
        )
        file.write("prepare:\n")
        for choice in (*_of_corpus(output, given, summary, paths), *prepare):
            file.write(textwrap.indent(_lines(choice), "  "))
        for choice in sections:
            file.write(_lines(choice))
    name = visible_name(output)
    print(
        f"found     {summary.num_pairs:,} pairs, {' to '.join(given.languages)}\n"
        f"held out  {len(summary.valid):,} pairs to validate and {len(summary.test):,} to test, in "
        f"{visible_name(str(folder))}; no training pair has one of their sentences\n"
        f"{name} is for {machine}, and says why, line by line. Next:\n  zeromt prepare {name}\n"
        f"  zeromt launch local {name}"
    )
    return 0


def _folder_beside(output: str) -> Path:
    """The folder of the held-out sets.

    Raises:
        UserError: the output's name is none for a configuration, or there is something already.
    """
    path, shown = Path(output), visible_name(output)
    if not _NAME.fullmatch(path.name):
        raise UserError(
            f"{_OUTPUT}: {shown}: the run gets its name; give letters, digits, dots, hyphens and .yaml, such as my.yaml"
        )
    folder = path.with_name(f"{path.stem}-data")
    with naming(_OUTPUT):
        there = next((one for one in (path, folder) if exists(one)), None)
    if there is not None:
        raise UserError(f"{_OUTPUT}: {visible_name(str(there))} is there; give another name, or move it away")
    if not path.parent.is_dir():
        raise UserError(f"{_OUTPUT}: {shown} cannot be written; give a file in a folder that exists")
    return folder


def _of_corpus(output: str, given: Corpus, summary: CorpusSummary, paths: dict[str, list[str]]) -> Iterator[Choice]:
    """What of `prepare` says where the corpus is."""
    yield Choice("output", f"data/{Path(output).stem}", "where `zeromt prepare` writes the dataset")
    for side, code in zip(("source", "target"), given.languages, strict=True):
        yield Choice(f"{side}_language", code, given.how)
    files = given.files
    train: dict[str, Any] = {"source": files.source, "target": files.target}
    if files.files:
        train = {"files": files.files, "reader": files.reader.kind}
    yield Choice("train", train, f"{summary.num_pairs:,} pairs")
    held_out = f"{len(summary.valid):,} pairs at random, of sentences that stand once in the corpus"
    for name, why in (("valid", held_out), ("test", "as many more, for `zeromt evaluate` at the end")):
        source, target = paths[name]
        yield Choice(name, {"source": [source], "target": [target]}, why)


def _lines(choice: Choice) -> str:
    """The reason, and below it the setting."""
    value = yaml.safe_dump(choice.value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=WIDTH)
    value = value.removesuffix("...\n").strip().replace("\n", "\n  ")
    return f"# {choice.why}\n{choice.key}: {value}\n"
