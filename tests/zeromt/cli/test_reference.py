"""docs/reference.md and the schema for editors are what the code says, and the schema takes what `load_run` takes."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from configs import load_run
from configs.load import dump_run
from zeromt.cli import reference

SCHEMA: dict[str, Any] = json.loads(reference.SCHEMA.read_text())
RUNS = sorted((reference.ROOT / "configs" / "runs").glob("*.yaml"))


def test_the_page_is_not_stale() -> None:
    assert reference.PAGE.read_text() == reference.page(), "make reference"


def test_the_schema_is_not_stale() -> None:
    assert reference.SCHEMA.read_text() == reference.schema_text(), "make reference"


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_example_runs_fit_as_written_and_as_resolved(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), SCHEMA)
    jsonschema.validate(yaml.safe_load(dump_run(load_run(str(path)))), SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        "optimizer: adamw",
        "optimizer: {lr: 0.1}",
        "schedule: {kind: cosine, warmup_updates: 10}",
        "schedule: {kind: my_own, anything: 3}",
        "evaluation: {metrics: [bleu, {kind: chrf, word_order: 2}]}",
        "evaluation: {queued: [{name: comet, command: python comet.py}]}",
        "stream: {datasets: [{path: a, weight: 2}, {path: b, weight: 1}]}",
        "training: {max_minutes: null}",
    ],
)
def test_what_is_allowed_fits(text: str) -> None:
    jsonschema.validate(yaml.safe_load(text), SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        "optimiser: adamw",
        "optimizer: {kind: adamw, learning_rate: 0.1}",
        "schedule: {kind: cosine, warmup_updates: -1}",
        "engine: {zero_stage: 4}",
        "evaluation: {search: {beam: 0}}",
        "training: {max_updates: many}",
        "name: a/b",
    ],
)
def test_what_is_wrong_does_not(text: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), SCHEMA)
