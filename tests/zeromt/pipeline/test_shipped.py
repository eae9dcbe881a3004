"""The recipes that are shipped: all settings are right, and each runs to its scores on a tiny corpus."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from configs.reading.shipped import shipped
from tests.conftest import bundled
from tests.small import small_runs
from tests.zeromt.pipeline.conftest import Run
from zeromt.pipeline.recipe import Pipeline

_MODEL = "{d_model: 16, encoder_layers: 1, decoder_layers: 1, attention: {num_heads: 2}, feed_forward: {d_ff: 32}}"
_GIVEN = _MODEL.replace("{d_model", "{residual: pre, max_positions: 128, d_model")
"""That of the small runs."""
_TINY = [
    "settings.data=data",
    "settings.pieces=150",
    "settings.parts=1",
    "settings.warmup=2",
    "settings.every=0",
    "settings.stream={micro_batches: 1, source_tokens: 512, target_tokens: 512}",
]
_OF = {
    "student": [
        f"settings.teacher={{model: {_MODEL}, updates: 12}}",
        f"settings.student={{model: {_MODEL}, updates: 8}}",
        "settings.mixed=4",
        "settings.licence=CC0-1.0",
        "settings.beam=2",
    ],
    "back_translation": [
        f"settings.model={{model: {_MODEL}, updates: 8}}",
        "settings.backward.updates=8",
        "settings.search=--sample",
    ],
    "low_resource": [
        f"settings.parent={{run: given, model: {_GIVEN}, lr: 1.0e-4, updates: 8}}",
        f"settings.student={{model: {_MODEL}, lr: 1.0e-3, updates: 8}}",
        "settings.longest=64",
        "settings.beam=2",
    ],
}
_LABELS = {"back_translation": ["without", "with"], "low_resource": ["teacher", "student"]}
_CHANGED = {
    "student": (["settings.mixed=5"], ["student", "exported", "student_scores", "int8_scores"]),
    "back_translation": (["settings.search=--beam 2"], ["translated", "synthetic", "with", "scores"]),
    "low_resource": ([], []),
}
_PATHS = {"low_resource": ["settings.parent.run=given"]}
"""Of what a recipe needs beside `data`."""


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder with the files that recipes ask for, in `data`, and a run that was trained elsewhere."""
    (tmp_path / "data").mkdir()
    for language in ("en", "fr"):
        for name, lines in {"train": slice(0, 240), "mono": slice(240, 300)}.items():
            _write(tmp_path / f"data/{name}.{language}.gz", bundled(language, lines))
        for name in ("valid", "test"):
            _write(tmp_path / f"data/{name}.{language}.gz", bundled(language, slice(300, 320)))
    shutil.copytree(small_runs() / "runs/small", tmp_path / "given")
    return tmp_path


def _write(file: Path, text: bytes) -> None:
    file.write_bytes(gzip.compress(text, mtime=0))


def _read(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text())
    return content


def _to_run(run: Run, folder: Path, *words: str) -> list[str]:
    return [line.split()[0] for line in run(folder, *words, "--dry-run").out.splitlines() if " runs: " in line]


@pytest.mark.parametrize("name", shipped("configs.pipelines"))
def test_settings_of_every_step_are_right(name: str, corpus: Path, run: Run) -> None:
    given = ["settings.data=data", *_PATHS.get(name, [])]
    steps = Pipeline.read(name, given).steps
    assert _to_run(run, corpus, name, *given) == [one for one in steps if steps[one].use is None]


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped("configs.pipelines"))
def test_it_runs_to_its_scores(name: str, corpus: Path, run: Run) -> None:
    """And a changed setting runs what follows, and no more."""
    words = [name, *_TINY, *_OF[name]]
    run(corpus, *words)
    results = corpus / "pipelines" / name
    if name == "student":
        for step in ("teacher_scores", "student_scores", "undistilled_scores", "int8_scores"):
            assert _read(results / step)["sentences_per_second"] > 0
        assert _read(results / "distilled/index.json")["pairs"] > 240, "two candidates of each sentence"
        assert "CC0-1.0" in (results / "exported/README.md").read_text()
    else:
        assert [one["label"] for one in _read(results / "scores")["runs"]] == _LABELS[name]
    assert _to_run(run, corpus, *words) == []
    assert _to_run(run, corpus, *words, *_CHANGED[name][0]) == _CHANGED[name][1]
