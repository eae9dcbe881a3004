"""Groups, marks, fields and curves, by hand."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from configs import RunConfig
from trainer.evaluation.sets import SetText
from trainer.records.marked_text import marked
from trainer.runs.course import read_cost
from zeromt.comparing.breakdown import by_frequency, by_languages, by_length, count_words
from zeromt.comparing.comparison import Comparison, Run
from zeromt.comparing.curves import Curve, Figure, in_common, read_curves
from zeromt.comparing.differences import configured
from zeromt.comparing.sentences import differing
from zeromt.comparing.sets import SharedSet, untagged
from zeromt.comparing.subjects import Subject, load_subjects
from zeromt.comparing.tables import to_parts
from zeromt.evaluating.resampling import MetricScores, RunScore, Samples, can_resample

REFERENCES = ["a b c", "a b c d", "a x", "a", "e f g h i j"]


def shared(references: list[str] = REFERENCES) -> SharedSet:
    text = SetText(name="set", languages=("en", "fr"), sources=["s"] * len(references), references=[references])
    return SharedSet(name="set", languages="en-fr", role="test", texts=[text])


def test_groups_by_length_hold_every_sentence_once_and_score_as_sacrebleu_does() -> None:
    from sacrebleu.metrics.chrf import CHRF

    lines = ["a b c", "d c b a", "a", "", "e f g"]
    found = by_length(shared(), [lines, REFERENCES], str.split, "chrF", CHRF(), 0)
    assert [(group.name, group.size) for group in found.groups] == [("1", 1), ("2", 1), ("3", 1), ("4", 1), ("6", 1)]
    for group, number in zip(found.groups, (3, 2, 0, 1, 4), strict=True):
        expected = CHRF().corpus_score([lines[number]], [[REFERENCES[number]]]).score
        assert group.runs[0].score == expected
        assert group.runs[1].score == pytest.approx(100)
    same = by_length(shared(["a b"] * 7), [["a b"] * 7], str.split, "chrF", CHRF(), 0)
    assert [(group.name, group.size) for group in same.groups] == [("2", 7)]


def test_words_by_frequency() -> None:
    counts = {"a": 1000, "b": 12, "c": 2, "d": 1}
    lines = ["a b b", "a d", "a y", "b", "e"]
    found = by_frequency(shared(), [lines], str.split, counts, "a text")
    by_name = {group.name: group for group in found.groups}
    assert list(by_name) == ["0", "1", "2 to 4", "10 to 99", "1000 or more"]
    sizes = {name: group.size for name, group in by_name.items()}
    assert sizes == {"0": 7, "1": 1, "2 to 4": 2, "10 to 99": 2, "1000 or more": 4}
    scores = {name: group.runs[0].score for name, group in by_name.items()}
    # twice what is right over what is wanted and what is made
    assert scores["0"] == pytest.approx(200 * 1 / (7 + 2))  # e; made: y, e
    assert scores["1"] == 100
    assert scores["2 to 4"] == 0
    assert scores["10 to 99"] == pytest.approx(200 * 1 / (2 + 3))
    assert scores["1000 or more"] == pytest.approx(200 * 3 / (4 + 3))
    assert count_words(["a b", "a"], str.split) == {"a": 2, "b": 1}


def test_means_by_pair_of_languages() -> None:
    def metric(score: float | None, other: float) -> list[MetricScores]:
        runs = [RunScore(score=score), RunScore(score=other)]
        return [
            MetricScores(
                key="bleu", label="BLEU", digits=2, higher_is_better=True, signature="", is_tested=True, runs=runs
            )
        ]

    sets = [dataclasses.replace(shared(), languages=languages) for languages in ("en-fr", "en-fr", "fr-en")]
    found = by_languages(sets, [metric(10, 1), metric(20, 2), metric(None, 5)])
    assert found == {"en-fr": [("BLEU", 2, [15, 1.5])], "fr-en": [("BLEU", 2, [None, 5])]}
    assert by_languages(sets[:2], [metric(10, 1), metric(20, 2)]) == {}


def test_marks() -> None:
    first, second = marked(["the cat sat", "the dog sat"])
    assert first == [("the ", False), ("cat", True), (" sat", False)]
    assert second == [("the ", False), ("dog", True), (" sat", False)]
    assert marked(["我喜歡書", "我愛書"]) == [
        [("我", False), ("喜歡", True), ("書", False)],
        [("我", False), ("愛", True), ("書", False)],
    ]
    of_three = marked(["a b c", "a b c", "a x c"])
    assert of_three[0] == [("a ", False), ("b", True), (" c", False)]
    assert of_three[1] == [("a b c", False)]
    for text in ("", " ", "a  b\tc", "\u202eab", "<b>|</b>", "字" * 10_000, "long" * 2500):
        for pieces in marked([text, "a b", ""]), marked(["", text]):
            assert "".join(piece for piece, _ in pieces[0 if pieces[0] else 1]) in (text, "a b", "")
        assert "".join(piece for piece, _ in marked([text, "other"])[0]) == text


def test_what_differs_most_comes_first_and_what_is_the_same_is_left_out() -> None:
    found = differing(shared(), [["a b c", "a b c d", "zz", "a", "e f"], ["a b c", "a b", "a x", "a", "e f g"]], 2)
    assert [one.number for one in found] == [3, 2]
    assert found[0].runs[1].score > found[0].runs[0].score


def test_tags_are_no_text() -> None:
    assert [untagged(line) for line in (">>fra<< a", ">>fra<<a", "a >>fra<< b", ">> a", "")] == [
        "a", "a", "a >>fra<< b", ">> a", "",
    ]  # fmt: skip


def subject(folder: Path, config: RunConfig | None = None) -> Subject:
    return Subject(
        label=folder.name,
        path=str(folder),
        folder=folder,
        checkpoint=None,
        no_checkpoint="none",
        config=config or RunConfig(),
    )


def test_fields_that_differ(tmp_path: Path) -> None:
    one = RunConfig(name="one")
    two = dataclasses.replace(one, name="two", seed=7)
    assert configured([subject(tmp_path, one), subject(tmp_path, two)]) == {"seed": ["1", "7"]}
    assert configured([subject(tmp_path, two)]) == {"seed": ["7"]}
    assert configured([subject(tmp_path, one)] * 3) == {}


def run_folder(folder: Path, lines: list[dict[str, object]]) -> Path:
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


def test_curves_by_updates_tokens_and_hours(tmp_path: Path) -> None:
    lines: list[dict[str, object]] = []
    for step in (10, 20, 30):
        train = {"kind": "train", "step": step, "nll": 5.0 - step / 10, "loss": 9.0}
        lines.append({**train, "total_target_tokens": 100 * step, "total_seconds": 36.0 * step})
    lines += [
        {"kind": "evaluation", "step": 15, "loss": 2.0, "bleu": 4.0, "bleu_signature": "x", "bleu/dev": 3.0},
        {"kind": "evaluation", "step": 30, "loss": 1.0, "bleu": None, "bleu_signature": "x"},
        {"kind": "score", "step": 15, "comet": 0.5, "comet_signature": "late"},
        {"kind": "event", "step": 30, "event": "checkpoint"},
    ]
    figures = {figure.key: figure for figure in read_curves([subject(run_folder(tmp_path / "run", lines))])}
    assert list(figures) == ["train/nll", "loss", "bleu", "bleu/dev", "comet"]
    [train_curve] = figures["train/nll"].curves
    assert (train_curve.axes["updates"], train_curve.values) == ([10, 20, 30], [4, 3, 2])
    [bleu] = figures["bleu"].curves
    assert (bleu.axes["updates"], bleu.axes["target tokens"], bleu.values) == ([15], [1500], [4])
    assert bleu.axes["hours"] == pytest.approx([0.15])
    assert figures["bleu/dev"].label == "BLEU, dev"


def evaluated(step: int, bleu: float, series: str = "s", **sets: float) -> dict[str, object]:
    """The line of an evaluation: of one set, or the mean over several."""
    parts = {
        key: value for name, each in sets.items() for key, value in ((f"loss/{name}", 1.0), (f"bleu/{name}", each))
    }
    mean = {"mean_over": list(sets)} if sets else {}
    line = {"kind": "evaluation", "step": step, "loss": 1.0, "bleu": bleu, "bleu_signature": "x", "series": series}
    return {**line, **parts, **mean}


def tables_of(folders: Sequence[Path], validated: Sequence[Mapping[str, str]]) -> dict[str, list[Sequence[str]]]:
    """The rows of the tables of curves, by title."""
    subjects = [subject(folder) for folder in folders]
    found = Comparison(
        runs=[Run(label=one.label, path="", step=None, checkpoint=None, parent=None, search={},
                  cost=read_cost(one.folder))
              for one in subjects],
        sets=[], language_pairs={}, configuration={}, data={}, figures=read_curves(subjects, validated),
        samples=Samples(), notes=[],
    )  # fmt: skip
    [curves] = [part for part in to_parts(found) if part.key == "curves"]
    return {
        table.title: [[str(cell) for cell in row[:4]] for row in table.rows if "BLEU" in row[0]]
        for table in curves.tables
    }


def test_a_mean_over_several_sets_does_not_stand_beside_one_sets_score(tmp_path: Path) -> None:
    """What both runs have is compared, whatever it is called in each; other figures say what they are of."""
    one = run_folder(tmp_path / "one", [evaluated(10, 30.0), evaluated(20, 31.0)])
    two = run_folder(tmp_path / "two", [evaluated(10, 20.0, a=32.0, b=8.0), evaluated(20, 22.0, a=34.0, b=10.0)])
    found = tables_of([one, two], [{"dataset": "T"}, {"a": "T", "b": "U"}])
    assert found["Last and best"] == [
        ["BLEU, dataset", "one", "31.00", "31.00"],
        ["BLEU, dataset", "two", "34.00", "34.00"],
        ["BLEU, mean over dataset, b", "two", "22.00", "22.00"],
        ["BLEU, b", "two", "10.00", "10.00"],
    ]
    [same] = {tuple(row) for title, rows in found.items() if title.startswith("At the same") for row in rows
              if row[1].endswith("updates")}  # fmt: skip
    assert same == ("BLEU, dataset", "20 updates", "31.00", "34.00")
    other = run_folder(tmp_path / "other", [evaluated(10, 40.0)])
    found = tables_of([one, other], [{"dataset": "T"}, {"dataset": "V"}])
    assert [row[:2] for row in found["Last and best"]] == [
        ["BLEU, dataset", "one"],
        ["BLEU, dataset of other", "other"],
    ]
    assert not found.get("At the same updates, target tokens and time")


def test_runs_with_the_same_sets_are_compared_by_their_means(tmp_path: Path) -> None:
    folders = [run_folder(tmp_path / name, [evaluated(10, 20.0, a=30.0, b=10.0)]) for name in ("one", "two")]
    known: list[list[dict[str, str]]] = [[{"a": "T", "b": "U"}] * 2, [{}, {}]]
    for validated in known:
        found = tables_of(folders, validated)
        assert found["Last and best"] == [["BLEU", name, "20.00", "20.00"] for name in ("one", "two")]


def test_the_best_is_one_of_the_series_of_the_last(tmp_path: Path) -> None:
    """A score that was measured otherwise, such as on other sets, is none to be compared with."""
    folder = run_folder(
        tmp_path / "run", [evaluated(10, 50.0, "then"), evaluated(20, 30.0, "now"), evaluated(30, 29.0, "now")]
    )
    [row] = tables_of([folder], [{}])["Last and best"]
    assert row == ["BLEU", "run", "29.00", "30.00"]


def test_a_broken_run_has_what_can_be_read(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", [{"kind": "train", "step": 1, "loss": 1.0}])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "step": 2, "lo')
    (folder / "ledger.json").write_text("[]")
    found = read_cost(folder)
    assert (found.updates, found.target_tokens, found.goodput, found.device_hours) == (1, None, None, {})
    [figure] = read_curves([subject(folder)])
    assert figure.curves[0].axes["hours"] == [None]


def test_values_in_common() -> None:
    def curve(xs: list[float | None], ys: list[float]) -> Curve:
        return Curve(axes={"updates": xs, "target tokens": [None] * len(xs), "hours": xs}, values=ys)

    figure = Figure(
        key="bleu",
        label="BLEU",
        digits=2,
        higher_is_better=True,
        curves=[curve([10, 20, 40], [1, 2, 4]), curve([10, 30], [5, 7])],
    )
    assert [(one.axis, one.at, one.values) for one in in_common(figure)] == [
        ("updates", 30, [3, 7]),
        ("hours", 30, [3, 7]),
    ]
    apart = dataclasses.replace(figure, curves=[curve([10], [1]), curve([20], [2])])
    assert in_common(apart) == []


def test_only_what_is_sacrebleus_is_resampled() -> None:
    from configs.components import Metric, ScoredText, make

    text = ScoredText(target_language="fr")
    metrics: list[Metric] = [make("metric", kind) for kind in ("bleu", "chrf", "ter", "length_ratio", "repeated")]
    assert [can_resample(m, m.build(text)) for m in metrics] == [True, True, True, False, False]


def test_names_can_be_told_apart(tmp_path: Path) -> None:
    for name in ("x/a", "y/a", "b"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.yaml").write_text("{}\n")
    paths = [str(tmp_path / name) for name in ("x/a", "y/a", "b", "b")]
    labels = [one.label for one in load_subjects(paths)]
    assert len(set(labels)) == 4
    assert labels[2:] == [paths[2], f"{paths[2]} (2)"]
