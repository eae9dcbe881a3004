"""Keys of earlier versions: every one of the table is read, from wherever it comes, and said where a user wrote it."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from configs import ConfigError, RunConfig, load_run, model_section, preset_model
from configs.components import make
from configs.load import parse_run
from configs.reading.old_keys import OLD_KEYS, OldKey, paths, renew
from tests.kept import BBB3253
from tests.model.flat import flat

RESOLVED = BBB3253 / "runs" / "small" / "config.yaml"
"""Written by an earlier version, which names every key that there was."""

VALUES: dict[str, tuple[dict[str, Any], Any]] = {
    "model.attention": ({}, "multi_head"),
    "model.feed_forward": ({}, "gelu"),
    "model.initialisation": ({}, "torch"),
    "model.norm": ({}, "rms"),
    "model.positions": ({}, "learned"),
    "model.residual": ({}, "post_dropout_last"),
    "model.num_heads": ({}, 4),
    "model.num_kv_heads": ({}, 1),
    "model.head_width": ({}, 6),
    "model.attention_bias": ({}, False),
    "model.attention_output_bias": ({}, False),
    "model.attention_scale": ({}, "model_width"),
    "model.attention_dropout": ({}, 0.25),
    "model.activation": ({}, "swiglu"),
    "model.d_ff": ({}, 48),
    "model.feed_forward_bias": ({}, False),
    "model.activation_dropout": ({}, 0.125),
    "model.position_base": ({"positions": "rotary"}, 500.0),
    "model.position_layout": ({}, "halves"),
    "model.position_offset": ({"positions": "learned"}, 2),
    "model.norm_eps": ({"norm": "sample"}, 1e-3),
    "model.norm_position": ({}, "post_block_dropout"),
}
"""Of every key that stands elsewhere now: what else the model must have, by the names of then, and a value."""
SAMPLING = ("temperature", "top_k", "top_p", "sample", "sample")
"""Of the search: see `TestSampling`."""
MOVED = [key for key in OLD_KEYS if key.new is not None and key.old.startswith("model.")]
each_moved = pytest.mark.parametrize("key", MOVED, ids=[key.old for key in MOVED])


def expected(key: OldKey) -> Any:
    """What today's key makes of the value."""
    beside, value = VALUES[key.old]
    part, field = str(key.new).split(".")[1:]
    tree: dict[str, Any] = {name: {"kind": kind} for name, kind in beside.items()}
    tree.setdefault(part, {})[field] = value
    return model_section(d_model=32, **tree)


def settings(key: OldKey) -> list[str]:
    beside, value = VALUES[key.old]
    shown = str(value).lower() if isinstance(value, bool) else value
    return [*(f"model.{name}={kind}" for name, kind in beside.items()), f"{key.old}={shown}"]


def line(key: OldKey) -> list[str]:
    return [f"{key.old} is now {key.new}"] if key.is_said else []


def write(folder: Path, tree: dict[str, Any]) -> str:
    path = folder / "run.yaml"
    OmegaConf.save(OmegaConf.create(tree), path)
    return str(path)


def test_the_table_is_walked() -> None:
    sampling = [f"evaluation.search.{name}" for name in SAMPLING]
    assert [key.old for key in OLD_KEYS if key.new is not None] == [*VALUES, *sampling]


@each_moved
def test_from_a_file(key: OldKey, tmp_path: Path) -> None:
    beside, value = VALUES[key.old]
    said: list[str] = []
    path = write(tmp_path, {"model": {"d_model": 32, **beside, key.old.removeprefix("model."): value}})
    assert load_run(path, say=said.append).model == expected(key)
    assert said == line(key)


@each_moved
def test_from_an_override(key: OldKey, tmp_path: Path) -> None:
    said: list[str] = []
    run = load_run(write(tmp_path, {"model": {"d_model": 32}}), settings(key), say=said.append)
    assert run.model == expected(key)
    assert said == line(key)


@each_moved
def test_over_a_preset(key: OldKey, tmp_path: Path) -> None:
    """Which is written in today's keys, and whose other fields stay."""
    beside, value = VALUES[key.old]
    model = {**beside, key.old.removeprefix("model."): value}
    found = load_run(write(tmp_path, {"preset": "vaswani_big", "model": model})).model
    preset = preset_model("vaswani_big")
    assert found == preset_model("vaswani_big", model)
    assert found != preset or value == "multi_head"
    assert flat(found).d_model == 1024
    if not key.old.endswith(("num_heads", "attention")):
        assert flat(found).num_heads == 16
    if not key.old.endswith("d_ff"):
        assert flat(found).d_ff == 4096


@each_moved
def test_from_a_run_of_an_earlier_version(key: OldKey, tmp_path: Path) -> None:
    """Nobody wrote its keys, so nothing is said of them; of an override that has one it is."""
    tree: dict[str, Any] = OmegaConf.to_container(OmegaConf.load(RESOLVED))  # type: ignore[assignment]
    name = key.old.removeprefix("model.")
    beside, value = VALUES[key.old]
    is_new = name in ("attention", "feed_forward", "residual")  # a kind alone is today's way to write these
    assert (name in tree["model"]) is not is_new
    model = {**tree["model"], "d_model": 32, **beside, name: value}
    if beside.get("positions") == "learned" or value == "learned":
        model |= {"position_base": 10000.0, "position_layout": "interleaved"}  # as it was always written
    said: list[str] = []
    found = load_run(write(tmp_path, {**tree, "model": model}), say=said.append).model
    assert said == []
    part, field = str(key.new).split(".")[1:]
    assert getattr(getattr(found, part), field) == value
    load_run(write(tmp_path, {**tree, "model": model}), settings(key), say=said.append)
    assert said == line(key)


def test_every_key_of_bbb3253_is_read() -> None:
    """The resolved configuration of a run names them all."""
    tree = OmegaConf.to_container(OmegaConf.load(RESOLVED))
    assert isinstance(tree, dict)
    for kind in ("inverse_sqrt", "cosine", "linear", "constant"):
        now = renew({**tree, "schedule": {**tree["schedule"], "kind": kind}})  # type: ignore[dict-item]
        assert parse_run(now).schedule.kind == kind
        assert set(paths(now)) >= {"seed", "schedule.warmup_updates", "prepare.cleaning.duplicates"}
    for positions in ("sinusoidal", "learned", "rotary", "none"):
        now = renew({**tree, "model": {**tree["model"], "positions": positions}})  # type: ignore[dict-item]
        assert parse_run(now).model.positions == make("positions", positions)


class TestLayers:
    """Defaults < preset < file < overrides, whichever names each of them has for a key."""

    def test_the_higher_layer_wins_by_either_name(self, tmp_path: Path) -> None:
        path = write(tmp_path, {"preset": "vaswani_big", "model": {"num_heads": 8}})
        assert flat(load_run(path).model).num_heads == 8
        assert flat(load_run(path, ["model.attention.num_heads=4"]).model).num_heads == 4
        assert flat(load_run(path, ["model.attention.num_heads=4", "model.num_heads=2"]).model).num_heads == 2
        path = write(tmp_path, {"model": {"attention": {"num_heads": 8}}})
        assert flat(load_run(path, ["model.num_heads=2"]).model).num_heads == 2
        assert flat(load_run(path, ["model={num_heads: 2, d_ff: 9}"]).model).d_ff == 9

    def test_a_kind_alone_leaves_the_fields_of_the_layers_below(self, tmp_path: Path) -> None:
        path = write(tmp_path, {"preset": "modern"})
        for setting in ("model.norm=sample", "model.norm.kind=sample", "model.norm={kind: sample}"):
            assert load_run(path, [setting]).model.norm == make("norm", "sample", eps=1e-6)
        found = load_run(path, ["model.feed_forward=gelu"]).model.feed_forward
        assert found == make("feed_forward", "gelu", d_ff=1408, bias=False)

    def test_another_kind_leaves_what_was_meant_for_the_one_below(self, tmp_path: Path) -> None:
        """Not an error, as nobody wrote it for this kind; what is written beside the kind is."""
        path = write(tmp_path, {"schedule": {"kind": "cosine", "min_lr_ratio": 0.1, "warmup_updates": 7}})
        constant, linear = (load_run(path, [f"schedule.kind={kind}"]).schedule for kind in ("constant", "linear"))
        assert constant == make("schedule", "constant", warmup_updates=7)
        assert linear == make("schedule", "linear", warmup_updates=7, min_lr_ratio=0.1)
        with pytest.raises(ConfigError, match=r"^schedule\.ratio: unknown key"):
            load_run(path, ["schedule={kind: constant, ratio: 1}"])
        path = write(tmp_path, {"preset": "nllb_600m"})
        assert load_run(path, ["model.positions=rotary"]).model.positions == make("positions", "rotary")
        with pytest.raises(ConfigError, match=r"^model\.positions\.layout: unknown key; allowed: kind, base"):
            load_run(path, ["model.positions=rotary", "model.position_layout=halves"])

    def test_where_they_still_mean_something_they_stay(self) -> None:
        tree = {"schedule": {"kind": "cosine", "min_lr_ratio": 0.1}}
        assert renew(tree) == tree
        tree = {"schedule": {"kind": "constant", "min_lr_ratio": 0.0}}
        assert renew(tree) == {"schedule": {"kind": "constant"}}

    @pytest.mark.parametrize("heads", ["${model.num_heads}", "${.num_heads}", "${model.attention.num_heads}"])
    def test_references_follow(self, heads: str, tmp_path: Path) -> None:
        model = {"d_model": 32, "num_heads": 4, "num_kv_heads": heads, "d_ff": "${.d_model}"}
        found = flat(load_run(write(tmp_path, {"model": model})).model)
        assert (found.num_kv_heads, found.d_ff) == (4, 32)

    def test_how_a_number_was_written_moves_with_it(self, tmp_path: Path) -> None:
        path = tmp_path / "run.yaml"
        path.write_text("model: {num_heads: 010}\n")
        with pytest.raises(ConfigError, match=r"^model\.attention\.num_heads: YAML reads 010 as 8, in base 8"):
            load_run(str(path))

    @pytest.mark.parametrize("model", ["5", "[1]", "null", "{num_heads: {a: 1}}", "{norm: 3}", "{norm: [rms]}", "text"])
    def test_what_is_no_value_is_refused_in_lines(self, model: str, tmp_path: Path) -> None:
        path = tmp_path / "run.yaml"
        path.write_text(f"model: {model}\n")
        with pytest.raises(ConfigError) as caught:
            load_run(str(path))
        assert all(problem.startswith("model") for problem in caught.value.problems)

    def test_what_is_written_names_none(self) -> None:
        tree = dataclasses.asdict(RunConfig())
        assert renew(tree) == tree


class TestSampling:
    """What was three fields and a switch is a component, in whichever layer each of them stands."""

    @pytest.mark.parametrize(
        ("given", "fields"),
        [
            (["sample=true"], {}),
            (["sample=true", "top_k=5"], {"top_k": 5}),
            (["top_k=5", "temperature=0.5", "sample=true"], {"top_k": 5, "temperature": 0.5}),
            (["sample=false", "top_p=0.5", "sampler.kind=truncated"], {"top_p": 0.5}),
            (["sample=true", "sampler.top_p=0.5"], {"top_p": 0.5}),
            (["sample=true", "sample=false"], None),
            (["temperature=1.0"], None),
        ],
    )
    def test_in_overrides(self, given: list[str], fields: dict[str, float] | None) -> None:
        search = load_run("debug", [f"evaluation.search.{item}" for item in given]).evaluation.search
        assert search.sampler == (None if fields is None else make("sampler", "truncated", **fields))

    @pytest.mark.parametrize("sample", [True, False])
    def test_of_a_run_of_an_earlier_version(self, sample: bool, tmp_path: Path) -> None:
        tree: dict[str, Any] = OmegaConf.to_container(OmegaConf.load(RESOLVED))  # type: ignore[assignment]
        search = tree["evaluation"]["search"]
        assert set(SAMPLING) <= set(search)
        search |= {"sample": sample, "top_k": 3 if sample else 0}
        said: list[str] = []
        path = write(tmp_path, tree)
        found = load_run(path, say=said.append).evaluation.search.sampler
        assert found == (make("sampler", "truncated", top_k=3) if sample else None)
        assert said == []
        again = load_run(path, ["evaluation.search.sample=true", "evaluation.search.top_k=7"], say=said.append)
        assert again.evaluation.search.sampler == make("sampler", "truncated", top_k=7)
        assert said == [
            "evaluation.search.sample is now evaluation.search.sampler.kind",
            "evaluation.search.top_k is now evaluation.search.sampler.top_k",
        ]

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            (["top_k=4"], "evaluation.search.sampler.kind: missing"),
            (["sample=false", "top_k=4"], "evaluation.search.sampler.kind: missing"),
            (["sampler=trunc"], "evaluation.search.sampler.kind: there is no kind 'trunc'; did you mean truncated?"),
            (["sampler={kind: truncated, topk: 3}"], "evaluation.search.sampler.topk: unknown key; did you mean"),
            (["sampler=truncated", "beam=2"], "evaluation.search.beam: 2 with a sampler; set it to 1"),
        ],
    )
    def test_what_is_refused(self, given: list[str], said: str) -> None:
        with pytest.raises(ConfigError) as caught:
            load_run("debug", [f"evaluation.search.{item}" for item in given])
        assert str(caught.value).startswith(said)
