"""Patterns of what is frozen, and what is refused of them before anything runs."""

import pytest

from benchmarks.device.work import json_output
from configs import load_run
from model import trained
from model.flops import Vocabularies, parameters
from zeromt.cli.main import main

FREEZE = "training.freeze="
SIZES = ("model.encoder_layers=12", "model.tied_embeddings=decoder")


@pytest.mark.parametrize(
    ("pattern", "beginnings"),
    [
        ("encoder", ("encoder.",)),
        ("encoder.*", ("encoder.",)),
        ("encoder.layers.1", ("encoder.layers.1.",)),
        ("source_embedding", ("source_embedding.tokens.weight",)),
        ("output", ("target_embedding.tokens.weight",)),
        ("encoder.layers.1?", ("encoder.layers.10.", "encoder.layers.11.")),
        ("[ed]*coder.norm.*", ("encoder.norm.", "decoder.norm.")),
    ],
)
def test_a_pattern_is_a_name_or_what_lies_in_it(pattern: str, beginnings: tuple[str, ...]) -> None:
    config = load_run("debug", [*SIZES, f"{FREEZE}['{pattern}']"])
    names = [p.name for p in parameters(config.model, Vocabularies(source=9, target=9))]
    assert set(trained.trained(config)) == {name for name in names if not name.startswith(beginnings)}


def test_a_tied_matrix_is_said_to_be_one() -> None:
    [line] = trained.tied(load_run("debug", [f"{FREEZE}[source_embedding]"]))
    assert line.startswith("training.freeze: source_embedding means target_embedding.tokens.weight, output.weight too")
    assert not list(trained.tied(load_run("debug", ["model.tied_embeddings=none", f"{FREEZE}[source_embedding]"])))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ([f"{FREEZE}['encodr.*']"], "training.freeze: 'encodr.*' matches no parameter"),
        ([f"{FREEZE}['*']"], "training.freeze: * is all of the model"),
        ([f"{FREEZE}['']"], "training.freeze.0: ''"),
    ],
)
def test_what_is_refused(settings: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "debug", "--nodes", "1", "--gpus-per-node", "1", *settings]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_plan_counts_no_moments_of_what_is_frozen() -> None:
    """Weights stay; gradients, masters and moments are of what is trained, and exact weights lie on the host."""
    listed = parameters(load_run("wmt_base", []).model, Vocabularies(source=37_000, target=37_000))
    frozen = sum(p.size for p in listed if p.name.startswith(("encoder.", "source_embedding.")))
    whole, less = (
        json_output("plan", "wmt_base", "--gpus-per-node", "8", "engine.precision=bf16", f"{FREEZE}{pattern}")
        for pattern in ("[]", "[encoder, source_embedding]")
    )
    assert sum(whole["parameters"].values()) - less["trained"] == frozen
    for option, others in zip(whole["settings"], less["settings"], strict=True):
        assert option["setting"] == others["setting"]
        one, other = (of["memory"]["states"] for of in (option, others))
        sizes = tuple(other[name] for name in ("optimizer", "weights", "host"))
        assert sizes == pytest.approx((one["optimizer"] - 12 * frozen / 8, one["weights"], 4 * frozen / 8), rel=1e-3)
        assert one["host"] == 0
        assert other["gradients"] < one["gradients"]
    assert whole["chosen"]["checkpoint_bytes"] - less["chosen"]["checkpoint_bytes"] == 8 * frozen
