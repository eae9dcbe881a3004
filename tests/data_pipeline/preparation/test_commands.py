"""Filters that are programs: they keep, drop and change pairs; what is wrong with one is said with file and line."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from configs import CleaningSection, UserError
from data_pipeline.preparation import prepare
from data_pipeline.preparation.filters.judging import CommandFilter
from data_pipeline.preparation.prepare import Part
from data_pipeline.prepared.dataset import Dataset
from tests.conftest import contents
from tests.data_pipeline.preparation.made import Corpus, many
from tests.data_pipeline.preparation.programs import faulty

PROGRAM = """
import json, sys

for text in sys.stdin:
    line = json.loads(text)
    number = int(line["source"].split()[3])
    answer = {"keep": number % 3 != 0} if number % 2 else {"source": line["source"].upper(), "target": line["target"]}
    print(json.dumps({"id": line["id"], **answer}), flush=True)
"""


def test_pairs_are_kept_dropped_and_changed(corpus: Corpus, in_spans: object, tmp_path: Path) -> None:
    """The same in one process, in several and in parts."""
    (tmp_path / "rules.py").write_text(PROGRAM)
    command = CommandFilter(
        command=[sys.executable, str(tmp_path / "rules.py")], depends=[str(tmp_path / "rules.py")], batch=7
    )
    pairs = [(s, t) for n, (s, t) in enumerate(many(3000)) if n % 10]
    section = corpus(pairs, filters=[command], record_places=True, cleaning=CleaningSection())
    prepare.run(section)
    dataset = Dataset.load(tmp_path / "out")
    dropped = [n for n, pair in enumerate(pairs) if (number := int(pair[0].split()[3])) % 2 and number % 3 == 0]
    changed = [n for n, pair in enumerate(pairs) if int(pair[0].split()[3]) % 2 == 0]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert (report["dropped"]["command"], report["changed"]["command"]) == (len(dropped), len(changed))
    assert report["examples"]["command"][0]["where"] == f"train.en: line {dropped[0] + 1}"
    lines = sorted(int(str(dataset.place(pair)).partition(":")[2]) - 1 for pair in range(dataset.num_pairs))
    assert lines == sorted({*range(len(pairs))} - {*dropped})
    split = dataclasses.replace(section, output=str(tmp_path / "parts"), workers=2)
    for number in (3, 1, 2):
        prepare.run(split, part=Part(number, 3))
    prepare.run(split, merge=True)
    assert contents(tmp_path / "parts") == contents(tmp_path / "out")
    prepare.run(dataclasses.replace(section, filters=[dataclasses.replace(command, batch=9, seconds=99.0)]))  # is there
    (tmp_path / "rules.py").write_text(f"{PROGRAM}\n")
    with pytest.raises(UserError, match=r"another dataset \(filters\.0\.depends: another content of rules\.py\)"):
        prepare.run(section)


@pytest.mark.parametrize(
    ("what", "said", "message"),
    [
        ("ends", "", r"ended with exit code 3 while .*line \d+ was waited for"),
        ("says", '{"id": ID, "keep": 1}', r"answered .* about .*train\.en: line 6"),
        ("says", '{"id": ID, "source": 3}', r"answered .* about .*train\.en: line 6"),
    ],
)
def test_programs_that_do_not_work(
    corpus: Corpus, small: Dataset, tmp_path: Path, what: str, said: str, message: str
) -> None:
    command = CommandFilter(command=faulty(tmp_path, {"keep": True}, what, said), batch=2, seconds=1.0)
    section = corpus(many(300), filters=[command])
    section = dataclasses.replace(section, tokenizer=dataclasses.replace(section.tokenizer, path=str(small.folder)))
    with pytest.raises(UserError, match=rf"prepare\.filters\.0\.command: '[^']*' {message}"):
        prepare.run(section)
