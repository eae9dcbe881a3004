"""A component of each family is added in one file outside of the repository."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors import safe_open

from configs.components.registry import FAMILIES
from data_pipeline.tokenizer import Tokenizer
from tests.configs.plugins.cases import CASES
from tests.conftest import BUNDLED, ask_python, read_metrics
from tests.forked import Forked

CONFIG = f"""
name: run
prepare:
  output: prepared
  root: {BUNDLED}
  target_language: fr
  train: {{source: [valid.en.gz], target: [valid.fr.gz]}}
  valid: {{source: [test.en.gz], target: [test.fr.gz]}}
  tokenizer: {{vocab_size: 500}}
  max_pieces: 128
stream: {{micro_batches: 2, source_tokens: 1024, target_tokens: 1024}}
model: {{d_model: 32, encoder_layers: 1, decoder_layers: 1, max_positions: 256, dropout: 0.0}}
engine: {{zero_stage: 1, precision: fp32}}
training: {{max_updates: 6, log_every: 1, tensorboard: false}}
evaluation: {{every_updates: 0, max_pairs: 8}}
"""
CLUSTER = ("--nodes", "1", "--gpus-per-node", "1", "--gpu-memory", "8GB")
LOADED = """
import sys, zeromt
model = zeromt.load("runs/run", plugins=sys.argv[1:]).model
answer = {
    "modules": [type(module).__name__ for module in model.modules()],
    "parameters": {name: parameter.flatten().tolist() for name, parameter in model.named_parameters()},
}
"""


@dataclass(frozen=True)
class Added:
    """What became of a folder in which every family's component was chosen."""

    folder: Path
    index: dict[str, Any]
    plan: dict[str, Any]
    train: list[dict[str, Any]]
    evaluation: dict[str, Any]
    modules: list[str]
    parameters: dict[str, list[float]]
    pairs: list[dict[str, Any]]
    """Of the first update."""


@pytest.fixture(scope="module")
def added(forked: Forked, tmp_path_factory: pytest.TempPathFactory) -> Added:
    """Planned, prepared, trained on two ranks, evaluated and loaded."""
    folder = tmp_path_factory.mktemp("added")
    theirs = folder / "theirs"
    theirs.mkdir()
    tree = yaml.safe_load(CONFIG)
    for case in CASES.values():
        tree = _merged(tree, case.chosen)
    for family, case in CASES.items():
        (theirs / f"{family}.py").write_text(case.code)
    tree["plugins"] = plugins = [f"theirs/{family}.py" for family in CASES]
    (folder / "my.yaml").write_text(yaml.safe_dump(tree))

    def run(*words: str) -> str:
        done = forked.zeromt(*words, cwd=folder)
        assert done.code == 0, done.err
        return done.out

    plan = json.loads(run("plan", "my.yaml", *CLUSTER, "--json"))
    run("prepare", "my.yaml")
    done = forked.trainer(2, "my.yaml", cwd=folder)
    assert done.code == 0, done.err
    loaded = ask_python(LOADED, *plugins, cwd=folder)
    named = [word for plugin in plugins for word in ("--plugins", plugin)]
    pairs = run("batch", "runs/run", "1", "--json", *named).splitlines()
    return Added(
        folder=folder,
        index=json.loads((folder / "prepared" / "index.json").read_text()),
        plan=plan,
        train=read_metrics(folder / "runs" / "run"),
        evaluation=read_metrics(folder / "runs" / "run", "evaluation")[-1],
        modules=loaded["modules"],
        parameters=loaded["parameters"],
        pairs=[json.loads(pair) for pair in pairs],
    )


def _merged(tree: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    merged = dict(tree)
    for key, value in more.items():
        merged[key] = _merged(merged.get(key, {}), value) if isinstance(value, dict) else value
    return merged


MODULES = {
    "attention": ("SingleHeadModule", 3),
    "feed_forward": ("SquaredReluModule", 2),
    "norm": ("MeanSquareModule", 7),
    "positions": ("CyclicModule", 2),
    "residual": ("GatedModule", 5),
}
"""What a part of the model builds, and how often it is in one of a layer a side."""


def _filter(added: Added) -> None:
    assert added.index["dropped"]["their_few_words"] > 0
    assert added.index["recipe"]["settings"]["filters"] == [{"kind": "their_few_words", "at_least": 5}]


def _initialisation(added: Added) -> None:
    assert added.train[0]["nll"] == pytest.approx(math.log(500), abs=1e-3), "all pieces are as probable"


def _loss(added: Added) -> None:
    assert [line["loss"] - line["nll"] for line in added.train] == pytest.approx([2.0] * 6, abs=1e-3)


def _metric(added: Added) -> None:
    hypotheses = (added.folder / "runs/run/eval/step-00000006.hyp").read_text().splitlines()
    references = (added.folder / "prepared" / "valid.target.txt").read_text().splitlines()[:8]
    ratio = 100 * sum(map(len, hypotheses)) / sum(map(len, references))
    assert added.evaluation["their_length_ratio"] == pytest.approx(ratio)
    assert added.evaluation["their_length_ratio_signature"] == "their_length_ratio|scale:100"


def _modifier(added: Added) -> None:
    words = [[len(pair[side].split()) for side in ("source", "target")] for pair in added.pairs]
    assert len(words) > 10
    assert max(map(max, words)) == 2


def _optimizer(added: Added) -> None:
    [path, *_] = (added.folder / "runs/run/checkpoints/step-00000006").glob("optimizer-*.safetensors")
    with safe_open(path, framework="pt") as file:
        assert {name.partition("/")[0] for name in file.keys()} == {"momentum_buffer"}  # noqa: SIM118 (not a dict)


def _reader(added: Added) -> None:
    source, target = ((added.folder / f"prepared/test.{side}.txt").read_text() for side in ("source", "target"))
    assert source == target
    lines = source.splitlines()
    assert lines[::2] == lines[1::2]
    assert len(set(lines)) > 100
    assert "reader their_copies" in added.index["recipe"]["settings"]["plugins"]


def _sampler(added: Added) -> None:
    lines = (added.folder / "runs/run/eval/step-00000006.hyp").read_text().splitlines()
    [piece] = Tokenizer.load(added.folder / "prepared").target_pieces([9])
    letters = piece.replace("▁", " ")
    assert len(lines) == 8
    assert all(line == (letters * (len(line) // len(letters) + 1)).strip()[: len(line)] for line in lines), lines
    assert min(map(len, lines)) > 10 * len(letters)


def _schedule(added: Added) -> None:
    rates = [0.05, 0.1, *(0.1 * 0.5 ** (step // 3) for step in range(3, 7))]
    assert [line["lr"] for line in added.train] == pytest.approx(rates)


def _tracker(added: Added) -> None:
    tracked = json.loads((added.folder / "runs/run/tracked.json").read_text())
    assert tracked == [*(["train", step] for step in range(1, 7)), ["valid", 6]]


CHECKS: dict[str, Callable[[Added], None]] = {
    name.removeprefix("_"): check for name, check in list(globals().items()) if name.removeprefix("_") in FAMILIES
}


def test_every_family_has_a_case() -> None:
    assert sorted(CASES) == sorted([*CHECKS, *MODULES]) == sorted(FAMILIES)


@pytest.mark.parametrize("family", CHECKS)
def test_it_does_what_it_says(family: str, added: Added) -> None:
    CHECKS[family](added)


def test_the_model_has_their_parts(added: Added) -> None:
    assert {family: (name, added.modules.count(name)) for family, (name, _) in MODULES.items()} == MODULES
    gates = [values for name, values in added.parameters.items() if name.endswith(".gate")]
    assert (len(gates), gates != [[0.5]] * 5) == (5, True), "one at least has learnt"
    assert len(added.parameters["encoder.layers.0.feed_forward.inner.bias"]) == 48


def test_a_plan_counts_their_parameters(added: Added) -> None:
    assert sum(added.plan["parameters"].values()) == sum(map(len, added.parameters.values()))
