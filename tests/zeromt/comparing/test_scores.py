"""Scores, intervals and tests are sacreBLEU's, digit by digit, on the files that `compare` names."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from configs.components import Metric, ScoredText, Scoring, make
from tests.conftest import Call, environment
from tests.waiting import PATIENCE
from tests.zeromt.comparing.conftest import Planted
from trainer.metrics.common import Bleu
from zeromt.comparing.significance import can_resample

NAMES = {"bleu": "BLEU", "chrf": "chrF2", "chrfpp": "chrF2++", "ter": "TER"}


def compared(call: Call, planted: Planted, *arguments: str, runs: Sequence[str] | None = None) -> Any:
    runs = planted.runs if runs is None else runs
    done = call("compare", *runs, "--json", *arguments, cwd=planted.root)
    assert done.code == 0, done.err
    return json.loads(done.out)


def sacrebleu(planted: Planted, references: Sequence[object], files: Sequence[str], *arguments: str) -> str:
    """What its command prints, figures with four digits."""
    command = [sys.executable, "-m", "sacrebleu", *map(str, references), "-i", *files, "-w", "4", *arguments]
    variables = {**environment(), "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=planted.root, env=variables, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def paired(planted: Planted, files: Sequence[str], *arguments: str) -> dict[str, Any]:
    """The cells of its table, by metric and system; its JSON fails on its own numbers."""
    lines = sacrebleu(planted, planted.references, files, "-f", "latex", *arguments).splitlines()
    rows = [[cell.strip() for cell in line.rstrip("\\ ").split(" & ")] for line in lines if " & " in line]
    metrics = [head.partition(" ")[0] for head in rows[0][1:]]
    return {name: [row[1 + place] for row in rows[1:]] for place, name in enumerate(metrics)}


def cell(run: Mapping[str, Any], p: float | None) -> str:
    """A figure of ours as sacreBLEU writes it."""
    text = f"{run['score']:.4f}"
    return text if p is None else f"{text} (p = {p:.4f}){'*' if p < 0.05 else ''}"


OURS = ("--metrics", "ter", "bleu", "{kind: chrf, word_order: 2}")
THEIRS = ("-m", "ter", "bleu", "chrf", "--chrf-word-order", "2")
KEYS = ("ter", "bleu", "chrfpp")


def test_paired_tests_have_sacrebleus_digits(call: Call, planted: Planted) -> None:
    first, second = planted.references
    option = f"{{name: planted, source: {planted.source}, references: [{first}, {second}]}}"
    [one] = compared(call, planted, "--set", option, *OURS, "--randomisation", "100")["sets"]
    scores = {metric["key"]: metric["runs"] for metric in one["scores"]}
    assert tuple(scores) == KEYS
    randomised = paired(planted, one["files"], *THEIRS, "--paired-ar", "--paired-ar-n", "100")
    for key, runs in scores.items():
        assert [cell(run, run.get("p")) for run in runs] == randomised[NAMES[key]]


def test_intervals_have_sacrebleus_digits(call: Call, planted: Planted) -> None:
    done = call("compare", planted.runs[1], "--json", "--set", planted.option, *OURS, cwd=planted.root)
    assert done.code == 0, done.err
    [one] = json.loads(done.out)["sets"]
    scores = {NAMES[metric["key"]]: metric["runs"] for metric in one["scores"]}
    arguments = ("-f", "json", *THEIRS, "--confidence")
    printed = json.loads(sacrebleu(planted, planted.references[:1], one["files"], *arguments))
    assert {single["name"] for single in printed} == scores.keys()
    for single in printed:
        [run] = scores[single["name"]]
        figures = tuple(round(run[name], 4) for name in ("score", "mean", "interval"))
        assert figures == (single["score"], single["confidence_mean"], single["confidence_var"])


def test_identical_runs_have_p_1(call: Call, planted: Planted) -> None:
    """sacreBLEU's own p is its least there: it counts the samples that differ by more than nothing."""
    run = planted.runs[0]
    found = compared(call, planted, "--set", planted.option, "--metrics", "bleu", "ter", runs=[run, run])
    assert [metric["runs"][1]["p"] for metric in found["sets"][0]["scores"]] == [1.0, 1.0]
    assert len({run["label"] for run in found["runs"]}) == 2


def test_three_runs_are_tested_beside_the_first(call: Call, planted: Planted) -> None:
    small, mixture = planted.runs
    arguments = ("--set", planted.option, "--bootstrap", "100", "--randomisation", "0")
    found = compared(call, planted, *arguments, runs=[small, mixture, small])
    pair = compared(call, planted, *arguments)
    for three, two in zip(found["sets"][0]["scores"], pair["sets"][0]["scores"], strict=True):
        assert three["runs"][:2] == two["runs"]
        assert three["runs"][1]["difference"] == two["runs"][1]["score"] - two["runs"][0]["score"]
        assert three["runs"][2]["score"] == three["runs"][0]["score"]
        assert three["runs"][1]["p"] is None


def test_only_what_is_sacrebleus_is_resampled() -> None:
    text = ScoredText(target_language="fr")

    class OfSources(Bleu):
        def score(self, scoring: Scoring, **_: Any) -> float:
            return 0.0

    metrics: list[Metric] = [make("metric", kind) for kind in ("bleu", "chrf", "ter")]
    assert all(can_resample(metric, metric.build(text)) for metric in metrics)
    assert not can_resample(OfSources(kind="bleu"), metrics[0].build(text))
    assert not can_resample(metrics[0], object())
