"""Which rules between fields a configuration has, and that what it accepts survives a round trip."""

from importlib import resources
from pathlib import Path

import pytest

from configs import ConfigError, ModelSection, UserError, load_run, preset_model, save_run
from configs.load import dump_run
from configs.reading.shipped import shipped
from tests.model.flat import flat

SHIPPED = sorted(
    p.name.removesuffix(".yaml") for p in resources.files("configs.runs").iterdir() if p.name.endswith(".yaml")
)


def write(folder: Path, text: str) -> str:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def problems(name: str, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_run(name, overrides)
    lines = str(caught.value).splitlines()
    assert lines == caught.value.problems
    return lines


RULES = [
    ("stream.datasets=[{weight: 2}]", "stream.datasets.0.path"),
    ("stream.datasets=[{path: a}, {path: b, weight: 2}]", "stream.datasets"),
    ("stream.datasets=[{path: a}, {path: a}]", "stream.datasets"),
    ("stream={datasets: [{path: a, weight: 1}], temperature: 5}", "stream.temperature"),
    ("stream.augment=[bpe_dropout, typos]", "stream.augment.0"),
    ("stream.augment=[bpe_dropout, unigram_sampling]", "stream.augment.0"),
    ("stream.augment=[{kind: typos, datasets: [other]}]", "stream.augment.0.datasets"),
    ("stream.augment=[{kind: noise, alphabet_of: 'a b'}]", "stream.augment.0.alphabet_of"),
    ("prepare.target_tag='>>fra<<'", "prepare.target_tag"),
    ("prepare.train={files: [a], reader: tsv, source: [b], target: [c]}", "prepare.train.files"),
    ("prepare.train.source=[a]", "prepare.train.source"),
    ("prepare.train={files: [a]}", "prepare.train.files"),
    ("prepare.train={source: [a], target: [b], reader: tsv}", "prepare.train.reader"),
    (
        "prepare={scores: {qe: {command: [a]}}, filters: [{kind: threshold, score: que, at_least: 1.0}]}",
        "prepare.filters.0.score",
    ),
    (
        "prepare={scores: {qe: {command: [a]}}, filters: [{kind: threshold, score: qe}]}",
        "prepare.filters.0.at_least",
    ),
    (
        "prepare={scores: {qe: {command: [a]}}, train: {files: [a], reader: tsv, scores: {qe: c}}}",
        "prepare.scores.qe",
    ),
    ("prepare={valid: {files: [a], reader: tsv, scores: {x: '3'}}}", "prepare.valid"),
    ("prepare={scores: {../x: {command: [a]}}}", "prepare.scores.../x"),
    ("model.attention.num_heads=7", "model.attention.num_heads"),
    ("evaluation.search.sampler.top_k=4", "evaluation.search.sampler.kind"),
    ("evaluation.search.sampler=truncated & evaluation.search.beam=2", "evaluation.search.beam"),
    ("evaluation.search.min_length_ratio=3", "evaluation.search.min_length_ratio"),
    ("evaluation.search.beam=256 & evaluation.search.batch_tokens=8", "evaluation.search.beam"),
    ("schedule.kind=cosine & schedule.warmup_updates=9 & training.max_updates=9", "schedule.warmup_updates"),
    ("engine.merge_lanes=2 & stream.datasets=[{path: a}, {path: b}]", "engine.merge_lanes"),
    ("prepare.train={files: [a, b], reader: tsv, licence: [x]}", "prepare.train.licence"),
    ("evaluation.queued=[{name: bleu, command: cat}]", "evaluation.queued.0.name"),
    ("evaluation.queued=[{name: loss, command: cat}]", "evaluation.queued.0.name"),
    (
        "evaluation.queued=[{name: comet, command: cat}] & training.early_stopping={metric: comet}",
        "training.early_stopping.metric",
    ),
    (
        "evaluation.queued=[{name: comet, command: cat}] & training.early_stopping={} & checkpoint.best_by=comet",
        "training.early_stopping.metric",
    ),
    (
        "evaluation.queued=[{name: comet, command: cat}] & evaluation.queued_end_minutes=60",
        "evaluation.queued_end_minutes",
    ),
]
"""Settings that break a rule between fields, or of a value, that is not in a type; the field that is named."""


@pytest.mark.parametrize(("settings", "field"), RULES, ids=[s for s, _ in RULES])
def test_broken_rule_is_one_line(tmp_path: Path, settings: str, field: str) -> None:
    [line] = problems(write(tmp_path, ""), *settings.split(" & "))
    assert line.startswith(f"{field}:")


def test_defaults_then_preset_then_file_then_overrides(tmp_path: Path) -> None:
    path = write(tmp_path, "preset: vaswani_big\nmodel: {dropout: 0.2, attention: {num_heads: 8}}\n")
    model = load_run(path, ["model.attention.num_heads=2", "model.attention.num_heads=4"]).model
    fields = flat(model)
    assert (fields.d_model, fields.d_ff, fields.dropout, fields.num_heads) == (1024, 4096, 0.2, 4)
    assert model.max_positions == ModelSection().max_positions


@pytest.mark.parametrize("preset", shipped("configs.presets"))
def test_each_loads_alone_and_survives_a_round_trip(preset: str, tmp_path: Path) -> None:
    run = load_run(write(tmp_path, f"preset: {preset}\n"))
    assert run.model == preset_model(preset, {})
    assert run.model != ModelSection()
    path = tmp_path / "config.yaml"
    save_run(run, path)
    assert load_run(str(path), ["name=run"]) == run
    assert "preset" not in path.read_text()


@pytest.mark.parametrize("name", ["nope", "3", "[modern]", "{a: 1}", "../runs/debug"])
def test_unknown_one_is_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^preset: "):
        load_run(write(tmp_path, ""), [f"preset={name}"])


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_runs_load_and_survive_a_round_trip(name: str, tmp_path: Path) -> None:
    run = load_run(name)
    assert run.name == name
    path = tmp_path / "config.yaml"
    save_run(run, path)
    again = load_run(str(path))
    assert again == run
    assert dump_run(again) == dump_run(run)
