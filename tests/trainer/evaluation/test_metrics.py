"""A metric and a sampler of somebody else's, in one file, are wherever ours are: figures, the log, what is best, the
commands."""

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from configs.components import ScoredText, make
from configs.components.training import describe_metrics
from tests.conftest import Finished, Refused, install_plugin, read_metrics
from tests.forked import Forked
from tests.small import FILES, small_runs
from trainer.checkpoint.state import TrainerState
from trainer.metrics.scoring import Scorer

THEIRS = '''
"""A metric and a sampler of somebody else's, in one file outside of the repository."""

import types

from configs.components import Metric, Sampler, component
from configs.fields import Positive


class Counted:
    def __init__(self, letters):
        self.letters = letters

    def corpus_score(self, hypotheses, references):
        misses = sum(abs(len(h) - len(r)) for h, r in zip(hypotheses, references[0]))
        return types.SimpleNamespace(score=misses / self.letters)

    def get_signature(self):
        return f"letters:{self.letters}"


@component("metric", "misses")
class Misses(Metric):
    """How far the lengths are apart, in so many letters."""

    title = "Misses"
    higher_is_better = False
    digits = 1
    letters: int = 10

    def build(self, text):
        return Counted(self.letters)


@component("sampler", "podium")
class Podium(Sampler):
    """One of the first few, each as likely."""

    places: Positive

    def candidates(self, log_p_NV):
        _, tokens = log_p_NV.topk(self.places, dim=-1)
        return log_p_NV.new_ones(tokens.shape), tokens
'''
MAX_PAIRS = 10
"""That the small run evaluates on."""
METRICS = "evaluation.metrics=[{kind: misses, letters: 3}, bleu, ter, {kind: chrf, word_order: 2}]"
SAMPLER = "evaluation.search.sampler={kind: podium, places: 3}"


Start = Callable[..., Finished]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment that has their package."""
    return install_plugin(tmp_path_factory.mktemp("metrics"), "metrics", THEIRS)


@pytest.fixture(scope="module")
def start(theirs: dict[str, str], forked: Forked) -> Start:
    """Runs a command with their package, or without."""
    return lambda *arguments, cwd, plugins=True: forked.zeromt(
        *arguments, cwd=cwd, surroundings=theirs if plugins else None
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, start: Start) -> Path:
    """Where a run was trained: scored by a metric of another package and three of ours, and best by the first."""
    place = Path(shutil.copytree(small_runs(), tmp_path_factory.mktemp("trained") / "place"))
    settings = ["training.max_updates=25", "evaluation.every_updates=5", "checkpoint.every_updates=5"]
    more = ["checkpoint.keep_last=2", "optimizer.lr=0.01"]
    done = start("train", "small.yaml", METRICS, SAMPLER, *settings, *more, cwd=place)
    assert done.code == 0, done.err
    (place / "out").write_text(done.out)
    return place


def test_it_is_in_the_figures_and_in_the_log(place: Path) -> None:
    run = place / "runs" / "small"
    lines = [line for line in read_metrics(run, "evaluation") if line["step"] > 10]
    assert [line["step"] for line in lines] == [15, 20, 25]
    references = (place / "corpus" / "v.fr").read_text().splitlines()[:MAX_PAIRS]
    for line in lines:
        hypotheses = (run / "eval" / f"step-{line['step']:08d}.hyp").read_text().splitlines()
        misses = sum(abs(len(h) - len(r)) for h, r in zip(hypotheses, references, strict=True)) / 3
        assert (line["misses"], line["misses_signature"]) == (misses, "letters:3")
        for key, theirs in (("bleu", BLEU(tokenize="13a")), ("ter", TER()), ("chrfpp", CHRF(word_order=2))):
            assert line[key] == pytest.approx(theirs.corpus_score(hypotheses, [references]).score, abs=1e-9), key
            assert line[f"{key}_signature"] == str(theirs.get_signature())
        names = [key for key in line if key in ("misses", "bleu", "chrf", "ter", "chrfpp")]
        assert names == ["misses", "bleu", "ter", "chrfpp"], "in the order in which they were asked for"
    pattern = r"step 25  valid .*Misses ([0-9.]+)  BLEU \S+  TER \S+  chrF\+\+ \S+  \(letters:3, "
    shown = re.findall(pattern, place_out(place))
    assert shown == [f"{lines[-1]['misses']:.1f}"]


def place_out(place: Path) -> str:
    return (place / "out").read_text()


def test_it_is_in_tensorboard(place: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(place / "runs" / "small"))
    board.Reload()
    lines = read_metrics(place / "runs" / "small", "evaluation")[-3:]
    for key in ("misses", "bleu", "ter", "chrfpp"):
        found = {event.step: event.value for event in board.Scalars(f"valid/{key}") if event.step > 10}
        assert found == pytest.approx({line["step"]: line[key] for line in lines}), key


def test_the_best_is_where_it_is_lowest(start: Start, place: Path) -> None:
    run = place / "runs" / "small"
    state = TrainerState.from_json(json.loads((run / "checkpoints/step-00000025/state.json").read_text())["trainer"])
    scores = {line["step"]: line["misses"] for line in read_metrics(run, "evaluation")[-3:]}
    assert state.best_scores == scores, "those before were of BLEU"
    best = min(scores, key=lambda step: (scores[step], -step))
    steps = {int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*")}
    assert steps == {20, 25} | {best}
    assert "what is best goes by misses as it is measured now" in place_out(place)
    done = start("average", "runs/small", "--best", "1", "-o", "mean", cwd=place)
    assert f"(steps {best})" in done.out, done.err
    shutil.rmtree(place / "mean")


def test_inspect_shows_it_with_and_without_its_package(start: Start, place: Path) -> None:
    line = read_metrics(place / "runs" / "small", "evaluation")[-1]
    for plugins, name, digits in ((True, "Misses", 1), (False, "misses", 2)):
        figures = f"{name} {line['misses']:.{digits}f}, BLEU {line['bleu']:.2f}, TER {line['ter']:.2f}, chrF++"
        done = start("inspect", "runs/small", cwd=place, plugins=plugins)
        assert f"step 25: {figures} {line['chrfpp']:.2f}" in done.out, (done.out, done.err)
    tree = json.loads(start("status", "runs/small", "--json", cwd=place, plugins=False).out)
    assert tree["last_score"] == f"Misses {line['misses']:.1f} at step 25"
    best = min(one["misses"] for one in read_metrics(place / "runs" / "small", "evaluation")[-3:])
    assert tree["best_score"].startswith(f"Misses {best:.1f} at step ")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["misses", "bleu", "ter", "chrfpp"]),
        (["--metrics", "chrf", "{kind: misses, letters: 1, name: apart}"], ["chrf", "apart"]),
    ],
)
def test_evaluate_takes_it(start: Start, place: Path, options: list[str], expected: list[str]) -> None:
    files = ["--source", "corpus/v.en", "--reference", "corpus/v.fr", "-o", "hyp"]
    done = start("evaluate", "runs/small", *files, *options, cwd=place)
    assert done.code == 0, done.err
    report: dict[str, Any] = json.loads(done.out)
    signed = [key.removesuffix("_signature") for key in report if key.endswith("_signature")]
    assert signed == expected
    pairs = zip(*((place / name).read_text().splitlines() for name in ("hyp", "corpus/v.fr")), strict=True)
    apart = sum(abs(len(h) - len(r)) for h, r in pairs)
    assert report[expected[-1] if options else "misses"] == (float(apart) if options else round(apart / 3, 1))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--metrics", "blue"], "--metrics.0.kind: "),
        (["--metrics", "{kind: ter, normalised: true}"], "--metrics.0.normalised: "),
        (["--metrics", "bleu", "bleu"], "--metrics.1.name: "),
        (["--metrics", "{"], "--metrics: 'metrics[0]={'"),
        (["--metrics", "ter", "--tokenizer", "char"], "--tokenizer: 'char'"),
    ],
)
def test_what_evaluate_refuses(refused: Refused, options: list[str], named: str) -> None:
    files = ["--source", str(FILES / "corpus" / "v.en"), "--reference", str(FILES / "corpus" / "v.fr")]
    assert refused("evaluate", str(small_runs() / "runs" / "small"), *files, *options).startswith(named)


def test_a_metric_that_fails_has_no_score_and_ends_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = Scorer([make("metric", "bleu"), make("metric", "ter")], ScoredText(target_language="fr"))

    def fail(*_: Any) -> None:
        raise ZeroDivisionError("no words")

    monkeypatch.setattr(scorer._scorings[0], "corpus_score", fail)
    scores = scorer.score(["a"], ["b c"], [["b c"]])
    assert math.isnan(scores["bleu"].value)
    assert scores["ter"].value == 0.0
    assert caplog.messages == ["evaluation: BLEU has no score: ZeroDivisionError: no words"]


def test_metrics_of_a_broken_configuration_are_shown_by_their_names() -> None:
    found = describe_metrics(["ter", {"kind": "nobody", "name": "x"}, {"kind": "chrf", "word_order": 2, "new": 1}, 3])
    assert {key: (one.label, one.higher_is_better) for key, one in found.items()} == {
        "ter": ("TER", False),
        "x": ("x", True),
        "chrf": ("chrf", True),
        "": ("", True),
    }
    assert list(describe_metrics(None)) == ["bleu", "chrf"]


class TestSampler:
    def test_evaluate_draws_as_training_did(self, start: Start, place: Path) -> None:
        """The run's sampler and seed: the translations of its last evaluation, and other ones by another seed."""
        files = ["--source", "corpus/v.en", "--reference", "corpus/v.fr", "-o", "drawn"]
        then = (place / "runs" / "small" / "eval" / "step-00000025.hyp").read_text().splitlines()
        for options, is_same in (([], True), (["--seed", "7"], False), (["--sampler", "truncated"], False)):
            done = start("evaluate", "runs/small", *files, *options, cwd=place)
            assert done.code == 0, done.err
            assert ((place / "drawn").read_text().splitlines()[:MAX_PAIRS] == then) == is_same, options

    def test_translate_takes_it(self, start: Start, place: Path) -> None:
        def lines(*options: str) -> list[str]:
            command = ["translate", "runs/small", "-i", "corpus/v.en", *options]
            done = start(*command, cwd=place)
            assert done.code == 0, done.err
            return done.out.splitlines()

        plain = ["translate", str(small_runs() / "runs" / "small"), "-i", "corpus/v.en"]
        greedy = start(*plain, cwd=place, plugins=False).out.splitlines()
        assert len(set(greedy)) > 1
        only_the_first = ["--sampler", "{kind: podium, places: 1}"]
        kept = [str(small_runs() / "runs" / "small"), "-i", "corpus/v.en", *only_the_first]
        assert start("translate", *kept, cwd=place).out.splitlines() == greedy
        assert lines() == lines() != lines("--seed", "2")

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (["--sampler", "{kind: podium, places: 0}"], "--sampler.places: 0"),
            (["--top-k", "3"], "--top-k: 3 with the sampler podium"),
        ],
    )
    def test_what_is_refused(self, start: Start, place: Path, options: list[str], said: str) -> None:
        command = ["translate", "runs/small", "-i", "corpus/v.en", *options]
        done = start(*command, cwd=place)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"zeromt: error: {said}")
