"""Scores of pairs: they follow their pairs, are asked for once, and decide as they should."""

import dataclasses
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs import CleaningSection, CorpusFiles, PrepareSection, TokenizerSection, UserError
from configs.data import ScoreCommand
from data_pipeline.preparation import prepare, programs
from data_pipeline.preparation.filters.judging import Threshold
from data_pipeline.preparation.prepare import Part
from data_pipeline.preparation.programs import ScoreSources
from data_pipeline.preparation.readers.lines import Tsv
from data_pipeline.prepared.dataset import Dataset
from tests.conftest import contents
from tests.data_pipeline.preparation.made import Corpus, many
from tests.data_pipeline.preparation.programs import asked, expected, faulty, scorer

PAIRS = [pair if n % 50 else (pair[0], " ") for n, pair in enumerate(many(3000))]


@pytest.fixture
def scored(in_spans: PrepareSection, corpus: Corpus, tmp_path: Path) -> PrepareSection:
    """3,000 pairs in spans of 250, some of them blank or doubled, with a score from a column and one by a command."""
    corpus(PAIRS)
    laser = [str(n / 1000) if n % 7 else ["", "nan"][n % 2] for n in range(3000)]
    (tmp_path / "train.tsv").write_text(
        "".join(f"{source}\t{target}\t{score}\n" for (source, target), score in zip(PAIRS, laser, strict=True))
    )
    return dataclasses.replace(
        in_spans,
        train=CorpusFiles(files=["train.tsv"], reader=Tsv(source_field=1, target_field=2), scores={"laser": 3}),
        scores={"qe": ScoreCommand(command=scorer(tmp_path), batch=16)},
        record_places=True,
    )


def _line(dataset: Dataset, pair: int) -> int:
    """Number, from 0, of a pair's line in the corpus."""
    return int(str(dataset.place(pair)).partition(":")[2]) - 1


def _laser(line: int) -> float:
    return line / 1000 if line % 7 else math.nan


WANTED = sorted(f"{source}\t{target}" for source, target in PAIRS if target.strip())
"""The pairs that the scorer must be asked about, each as often as it is there."""


def test_scores_follow_their_pairs(scored: PrepareSection, tmp_path: Path) -> None:
    """In the same bytes at any number of parts; and the shards are those without scores."""
    prepare.run(scored)
    dataset = Dataset.load(tmp_path / "out")
    assert dataset.scores() == ["laser", "qe"]
    lines = [_line(dataset, pair) for pair in range(dataset.num_pairs)]
    assert sorted(lines) == sorted({pair: n for n, pair in reversed([*enumerate(PAIRS)]) if pair[1].strip()}.values())
    np.testing.assert_array_equal(dataset.score("laser"), np.array([_laser(line) for line in lines], dtype=np.float32))
    qe = [expected(*PAIRS[line]) for line in lines]
    np.testing.assert_array_equal(
        dataset.score("qe"), np.array([math.nan if one is None else one for one in qe], dtype=np.float32)
    )
    assert asked(tmp_path) == WANTED
    whole = contents(tmp_path / "out")
    for parts in (3, 7):
        (tmp_path / "asked").unlink()
        section = dataclasses.replace(scored, output=str(tmp_path / f"parts-{parts}"), workers=parts % 3)
        for number in range(parts, 0, -1):
            prepare.run(section, part=Part(number, parts))
        prepare.run(section, merge=True)
        assert contents(tmp_path / f"parts-{parts}") == whole
        assert asked(tmp_path) == WANTED
    plain = dataclasses.replace(
        scored, output=str(tmp_path / "plain"), scores={}, train=dataclasses.replace(scored.train, scores={})
    )
    prepare.run(plain)
    assert Dataset.load(tmp_path / "plain").index.shards == dataset.index.shards
    assert contents(tmp_path / "plain").keys() == {name for name in whole if not name.startswith("score-")}


def test_kills_while_it_scores(scored: PrepareSection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is not asked for again: at most what the programs had at the time is."""
    left = [3]

    def write(self: ScoreSources, *given: Any) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        kept(self, *given)

    kept = ScoreSources.write
    monkeypatch.setattr(ScoreSources, "write", write)
    for _ in range(3):
        left[0] = 3
        with pytest.raises(KeyboardInterrupt):
            prepare.run(scored)
    left[0] = 99
    damaged = next(tmp_path.rglob("scores/qe/0/*.npy"))
    damaged.write_bytes(damaged.read_bytes()[:-40])
    prepare.run(scored)
    again = Counter(asked(tmp_path)) - Counter(WANTED)
    assert not Counter(WANTED) - Counter(asked(tmp_path))
    assert again.total() <= 250 + 3 * (250 + 5 * 2 * 2 * 16)
    wanted = contents(tmp_path / "out")
    prepare.run(dataclasses.replace(scored, output=str(tmp_path / "again")))
    assert contents(tmp_path / "again") == wanted


def test_what_scores_depend_on_is_what_makes_them(scored: PrepareSection, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_text("1")
    command = dataclasses.replace(scored.scores["qe"], depends=[str(tmp_path / "model")])
    section = dataclasses.replace(scored, scores={"qe": command})
    prepare.run(section)
    assert Dataset.load(tmp_path / "out").score_entry("qe").made_by == {"command": command.command}
    faster = dataclasses.replace(command, batch=99, seconds=60.0)
    prepare.run(dataclasses.replace(section, scores={"qe": faster}))  # is there
    assert len(asked(tmp_path)) == len(WANTED)
    (tmp_path / "model" / "weights").write_text("2")
    with pytest.raises(UserError, match=r"\(scores.qe.depends: another content of model/weights\)"):
        prepare.run(section)
    with pytest.raises(UserError, match=r"holds another dataset \(scores.comet.command was None and is \["):
        prepare.run(dataclasses.replace(scored, scores={"comet": command}))


@pytest.mark.parametrize(
    ("fields", "keeps"),
    [
        ({"score": "qe", "at_least": 0.7}, lambda qe, _: qe is not None and qe >= 0.7),
        ({"score": "qe", "at_most": 0.7, "without": "keep"}, lambda qe, _: qe is None or qe <= 0.7),
        ({"score": "laser", "at_least": 0.5, "at_most": 1.5}, lambda _, laser: 0.5 <= laser <= 1.5),
    ],
)
def test_a_threshold_keeps_what_is_within(
    scored: PrepareSection, tmp_path: Path, fields: dict[str, Any], keeps: Any
) -> None:
    section = dataclasses.replace(scored, filters=[Threshold(**fields)], cleaning=CleaningSection())
    prepare.run(section)
    dataset = Dataset.load(tmp_path / "out")
    wanted = [n for n, pair in enumerate(PAIRS) if pair[1].strip() and keeps(expected(*pair), _laser(n))]
    assert 0 < len(wanted) < 2900
    assert sorted(_line(dataset, pair) for pair in range(dataset.num_pairs)) == wanted
    name = f"threshold of {fields['score']}"
    assert dataset.index.dropped == {"empty": 60, name: 2940 - len(wanted), "too long": 0}
    prepare.run(section)  # is there
    for other in ({"at_least": 0.1}, {"without": "keep" if fields.get("without") != "keep" else "drop"}):
        changed = dataclasses.replace(section, filters=[Threshold(**{**fields, **other})])
        with pytest.raises(UserError, match=r"out holds another dataset \(filters was"):
            prepare.run(changed)


def test_scores_are_verified(scored: PrepareSection, tmp_path: Path) -> None:
    prepare.run(scored)
    dataset = Dataset.load(tmp_path / "out")
    with pytest.raises(UserError, match=r"has no score 'comet' \(it has: laser, qe\)"):
        dataset.score("comet")
    (tmp_path / "out" / "score-qe.npy").write_bytes((tmp_path / "out" / "score-laser.npy").read_bytes())
    with pytest.raises(UserError, match=r"score-qe\.npy: its hash is not the index's"):
        dataset.score("qe")
    (tmp_path / "out" / "score-qe.json").write_text("[]")
    with pytest.raises(UserError, match=r"score-qe\.json: \[\]: Input should"):
        dataset.score("qe")


def test_scores_that_are_no_numbers(tmp_path: Path) -> None:
    section = PrepareSection(
        output=str(tmp_path / "bad"),
        root=str(tmp_path),
        train=CorpusFiles(files=["bare.tsv"], reader=Tsv(source_field=1, target_field=2), scores={"s": "3"}),
        tokenizer=TokenizerSection(vocab_size=40, threads=1),
        workers=1,
    )
    rows = [f"the cat {n}\tle chat {n}\t{n / 64}\n" for n in range(100)]
    for text in ("high", "-inf", "12_34", "1e39"):
        (tmp_path / "bare.tsv").write_text("".join([*rows[:40], f"a\tb\t{text}\n", *rows[41:]]))
        said = rf"bare\.tsv: line 41: s is '{text}'"
        with pytest.raises(UserError, match=said):
            prepare.run(section)


@pytest.mark.parametrize(
    ("what", "said", "message"),
    [
        ("ends", "", r"ended with exit code 3 .*line \d+ was waited for"),
        ("closes", "", r"closed its output .*line \d+ was waited for"),
        ("never", "", r"has not answered in 1 s, as about .*line 6"),
        ("twice", "", r"answered .* about .*line 6; allowed is the id of a pair that waits"),
        ("says", "0.5", r"answered '0\.5'"),
        ("says", '{"id": ID, "error": "no\\nGPU"}', r"answered the error 'no GPU' about .*line 6"),
        ("says", '{"id": ID, "score": "0.5"}', r"answered '0\.5' about .*line 6"),
        ("says", '{"id": ID, "score": NaN}', "answered "),
        ("says", '{"id": true, "score": 1}', "answered "),
    ],
)
def test_programs_that_do_not_work(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, said: str, message: str
) -> None:
    monkeypatch.setattr(programs, "END_SECONDS", 1.0)
    command = ScoreCommand(command=faulty(tmp_path, {"score": 0.5}, what, said), batch=2, seconds=1.0)
    with pytest.raises(UserError, match=rf"prepare\.scores\.qe\.command: '[^']*' {message}"):
        prepare.run(corpus(many(300), scores={"qe": command}))
