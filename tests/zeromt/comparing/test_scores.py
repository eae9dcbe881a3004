"""Scores, intervals and tests are sacreBLEU's, digit by digit, on the same files."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from configs.components import Metric, ScoredText, make
from tests.conftest import bundled, environment
from tests.waiting import PATIENCE
from trainer.metrics.scoring import Scorer
from zeromt.comparing.significance import score_runs

NAMES = {"bleu": "BLEU", "chrfpp": "chrF2++", "ter": "TER"}
METRICS: list[Metric] = [make("metric", "ter"), make("metric", "bleu"), make("metric", "chrf", word_order=2)]
THEIRS = ("-m", "ter", "bleu", "chrf", "--chrf-word-order", "2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two references of 60 sentences, and what two systems make of them."""
    folder = tmp_path_factory.mktemp("systems")
    reference = bundled("fr", slice(60)).decode().splitlines()
    texts = {
        "first": reference,
        "second": [line[::-1] if number % 3 else f"{line} aussi" for number, line in enumerate(reference)],
        "one": [worse(line, number % 4) for number, line in enumerate(reference)],
        "two": [worse(line, -~number % 3) for number, line in enumerate(reference)],
    }
    for name, lines in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return folder


def worse(line: str, how: int) -> str:
    """A translation that is right, or has lost, swapped or repeated a word."""
    words = line.split(" ")
    changed = {0: words, 1: words[1:] or words, 2: [*words[1:], words[0]], 3: [*words, words[-1]]}
    return " ".join(changed[how])


def scored(folder: Path, systems: Sequence[str], references: Sequence[str] = ("first",), **how: int) -> dict[str, Any]:
    """The figures of each system by sacreBLEU's names of the metrics."""
    scorer = Scorer(METRICS, ScoredText(target_language="fr"), num_references=len(references))
    texts, given = ([(folder / one).read_text().splitlines() for one in names] for names in (references, systems))
    scores = score_runs(scorer, [""] * 60, texts, given, **{"bootstrap": 0, "randomisation": 0, **how})
    return {NAMES[metric["key"]]: metric["runs"] for metric in scores}


def sacrebleu(folder: Path, *words: str) -> str:
    """What its command prints, figures with four digits."""
    command = [sys.executable, "-m", "sacrebleu", *words, "-w", "4", *THEIRS]
    variables = {**environment(), "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_paired_tests_have_sacrebleus_digits(folder: Path) -> None:
    words = ("first", "second", "-i", "one", "two", "-f", "latex", "--paired-ar", "--paired-ar-n", "100")
    table = [line for line in sacrebleu(folder, *words).splitlines() if " & " in line]  # its JSON fails on its numbers
    rows = [[cell.strip() for cell in line.rstrip("\\ ").split(" & ")] for line in table]
    for metric, runs in scored(folder, ["one", "two"], ["first", "second"], randomisation=100).items():
        column = next(place for place, head in enumerate(rows[0]) if head.partition(" ")[0] == metric)
        first, second = runs
        p = f"{second['score']:.4f} (p = {second['p']:.4f}){'*' if second['p'] < 0.05 else ''}"
        assert [row[column] for row in rows[1:]] == [f"{first['score']:.4f}", p]


def test_intervals_have_sacrebleus_digits(folder: Path) -> None:
    ours = scored(folder, ["two"], bootstrap=1000)
    for theirs in json.loads(sacrebleu(folder, "first", "-i", "two", "-f", "json", "--confidence")):
        [run] = ours[theirs["name"]]
        figures = tuple(round(run[name], 4) for name in ("score", "mean", "interval"))
        assert figures == (theirs["score"], theirs["confidence_mean"], theirs["confidence_var"])


def test_each_is_tested_beside_the_first_and_equal_ones_have_p_1(folder: Path) -> None:
    """sacreBLEU's own p of equal ones is its least: it counts the samples that differ by more than nothing."""
    pair = scored(folder, ["one", "two"], randomisation=100)
    for metric, runs in scored(folder, ["one", "two", "one"], randomisation=100).items():
        assert runs[:2] == pair[metric]
        assert (runs[2]["score"], runs[2]["p"]) == (runs[0]["score"], 1.0)
        assert runs[1]["difference"] == runs[1]["score"] - runs[0]["score"]
