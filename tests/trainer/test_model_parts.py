"""Parts of a model in one file outside the repository: trained, planned for, searched, exported or refused by name."""

import hashlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPO, Finished, environment, install_plugin, read_metrics
from tests.forked import Forked
from tests.small import FILES, small_runs
from tests.trainer.their_parts import THEIRS

PARTS = {
    "attention": "model.attention={kind: bare, temperature: 0.5}",
    "feed_forward": "model.feed_forward={kind: geglu, d_ff: 24}",
    "positions": "model.positions={kind: half_rotary, base: 500}",
    "norm": "model.norm=mean_norm",
    "residual": "model.residual=rezero",
    "loss": "loss={kind: focal, gamma: 1.5}",
}
"""What chooses each of theirs; the loss is no part that a program would have."""
TRAINED = ("attention", "feed_forward", "loss")
KINDS = {setting.split("=")[0]: setting.split("kind: ")[-1].split(",")[0].split("=")[-1] for setting in PARTS.values()}
SETTINGS = (
    "training.max_updates=2", "training.tensorboard=false", "evaluation.max_pairs=2",
    "evaluation.search={max_length_extra: 2, max_length_ratio: 0.1}", "training.ema_decay=0",
)  # fmt: skip
FORGETFUL = '''
from configs.components import component
from model.components.multi_head import MultiHead


@component("attention", "forgetful")
class Forgetful(MultiHead):
    """In a search each step attends to its own position alone."""

    def build(self, width, rotation):
        module = super().build(width, rotation)

        class Module(type(module)):
            def extend(self, cache, key, value):
                super().extend(cache, key, value)
                return key, value

        module.__class__ = Module
        return module
'''
PLAN = ("plan", "CONFIG", "--nodes", "1", "--gpus-per-node", "2", "--gpu-memory", "16GB", "--json")


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of somebody else's, with one file of theirs, installed, and a corpus."""
    folder = tmp_path_factory.mktemp("user")
    install_plugin(folder, "parts", THEIRS)
    (folder / "corpus").symlink_to(FILES / "corpus")
    (folder / "dataset").symlink_to(small_runs() / "dataset")
    return folder


@pytest.fixture(scope="module")
def variables(user: Path) -> dict[str, str]:
    found = environment()
    return {**found, "PYTHONPATH": f"{found['PYTHONPATH']}{os.pathsep}{user}"}


@pytest.fixture(scope="module")
def zeromt(user: Path, variables: dict[str, str]) -> Iterator[Callable[..., Finished]]:
    theirs = Forked("env", f"PYTHONPATH={variables['PYTHONPATH']}")
    config = str(FILES / "small.yaml")
    yield lambda *arguments: theirs.zeromt(*(config if a == "CONFIG" else a for a in arguments), cwd=user)
    theirs.close()


def content_of_the_repository() -> dict[str, str]:
    """SHA-256 of every source file and configuration."""
    packages = ("configs", "data_pipeline", "launcher", "model", "trainer", "zeromt")
    files = [p for name in packages for p in (REPO / name).rglob("*") if p.suffix in (".py", ".yaml")]
    assert len(files) > 300
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture(scope="module")
def trained(zeromt: Callable[..., Finished], user: Path) -> Iterator[dict[str, Path]]:
    """Runs of two updates: with parts that are exported alone, and with all that go together."""
    before = content_of_the_repository()
    runs = {}
    chosen = {name: [PARTS[name]] for name in TRAINED}
    chosen["all"] = [setting for name, setting in PARTS.items() if name != "attention"]
    for name, settings in chosen.items():
        done = zeromt("train", "CONFIG", *SETTINGS, *settings, f"name={name}")
        assert done.code == 0, done.err
        runs[name] = user / "runs" / name
    yield runs
    assert content_of_the_repository() == before, "one more file, outside of the repository"


@pytest.mark.parametrize("name", [*TRAINED, "all"])
def test_each_trains_and_is_evaluated(name: str, trained: dict[str, Path]) -> None:
    losses = [line["loss"] for line in read_metrics(trained[name])]
    assert len(losses) == 2
    assert all(math.isfinite(loss) for loss in losses)
    assert read_metrics(trained[name], "evaluation"), "it is searched with, step by step"


def plan_of(zeromt: Callable[..., Finished], *settings: str) -> dict[str, Any]:
    done = zeromt(*PLAN, *settings)
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_a_plan_has_the_costs_that_each_says(zeromt: Callable[..., Finished]) -> None:
    ours = plan_of(zeromt)
    theirs = {name: plan_of(zeromt, setting) for name, setting in PARTS.items()}

    def parameters(name: str, part: str) -> int:
        return int(theirs[name]["parameters"][part])

    assert parameters("attention", "encoder attention") == 16 * 16
    assert parameters("feed_forward", "encoder feed-forward") == 3 * 16 * 24 + 2 * 24 + 16
    assert parameters("norm", "norms") == (2 + 3 + 2) * 16
    assert parameters("residual", "norms") == (2 + 3) * 1 + 2 * 2 * 16
    for name, part in (("attention", "encoder attention"), ("feed_forward", "decoder feed-forward")):
        flops = [tree["flops_per_target_token"][part] for tree in (ours, theirs[name])]
        assert flops[0] != flops[1], name
    for name in ("attention", "feed_forward", "norm", "residual"):
        activations = [tree["chosen"]["memory"]["activations"] for tree in (ours, theirs[name])]
        assert activations[0] != activations[1], name
    assert theirs["loss"]["chosen"]["memory"]["output"] != ours["chosen"]["memory"]["output"]


def test_exports_go_by_what_each_says(zeromt: Callable[..., Finished], trained: dict[str, Path]) -> None:
    """Every program refuses what has not said that it has it, all at once; what has, is exported and checked."""
    refused = {"huggingface": set(PARTS) - {"attention", "loss"}}
    refused["ctranslate2"] = refused["huggingface"] - {"feed_forward"}
    for program, names in refused.items():
        done = zeromt("export", str(trained["all"]), "--format", program, "-o", f"exported-{program}")
        assert done.code == 2
        for name in names:
            assert f"model.{name}.kind: '{KINDS[f'model.{name}']}'; allowed is " in done.err, done.err
        assert ("model.feed_forward" in done.err) == ("feed_forward" in names)
    done = zeromt("export", str(trained["attention"]), "--format", "huggingface", "-o", "exported-attention")
    assert (done.code, done.err.count("model.attention.kind: 'bare'; allowed is multi_head")) == (2, 1)
    for name, program in (("feed_forward", "ctranslate2"), ("all", "safetensors"), ("loss", "huggingface")):
        done = zeromt("export", str(trained[name]), "--format", program, "-o", f"exported-{name}")
        assert done.code == 0, done.err


def test_what_an_attention_has_no_weights_for_is_refused(
    zeromt: Callable[..., Finished], trained: dict[str, Path], user: Path
) -> None:
    (user / "text.en").write_text("A cat.\n")
    arguments = ("translate", str(trained["attention"]), "-i", "text.en", "-o", "text.fr")
    for option in ("--alignment", "--attention"):
        done = zeromt(*arguments, option, "shown")
        assert done.code == 2
        assert f"{option}: model.attention.kind 'bare' has no weights to show; leave it out" in done.err
    done = zeromt(*arguments, "--beam", "3")
    assert done.code == 0, done.err


def test_one_that_trains_and_translates_as_two_models_is_refused_before_update_1(
    zeromt: Callable[..., Finished], user: Path
) -> None:
    (user / "forgetful.py").write_text(FORGETFUL)
    settings = ("--plugins", "forgetful.py", "model.attention=forgetful", "name=forgetful")
    done = zeromt("train", "CONFIG", *SETTINGS, *settings)
    assert done.code == 2, done.err
    assert "zeromt: error: model.attention: forgetful: with teacher forcing and step by step" in done.err
    assert not (user / "runs" / "forgetful" / "metrics.jsonl").exists()


def test_one_that_says_too_little_or_wrong(variables: dict[str, str], user: Path) -> None:
    """Without costs it trains and cannot be planned for; with wrong ones it is refused where it is built."""
    code = """
import sys
from configs import UserError, load_run
from configs.components import component
from configs.components.model import Norm
from model import SpecialIds, build_transformer
import zeromt.planning.costs.memory as memory
from model.parameters import Vocabularies


@component("norm", "silent")
class Silent(Norm):
    \"\"\"Says nothing of itself.\"\"\"

    def build(self, width):
        from torch import nn

        return nn.LayerNorm(width)


@component("norm", "liar")
class Liar(Silent):
    \"\"\"Says that it has no bias.\"\"\"

    def parameters(self, width):
        yield "weight", (width,)


for kind in ("silent", "liar"):
    run = load_run("debug", [f"model.norm={kind}"])
    for job in (
        lambda: build_transformer(
            run.model, source_vocab_size=9, target_vocab_size=9, special=SpecialIds(pad=0, bos=1, eos=2), seed=1
        ),
        lambda: memory.MemoryModel(run, Vocabularies(source=9, target=9), precision="bf16"),
    ):
        try:
            job()
            print(kind, "works")
        except UserError as error:
            print(kind, error)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=user, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "silent works",
        "silent model.norm.kind: 'silent' does not state its parameters, which a plan needs; add a method "
        "`parameters` to the component, or use another kind",
        "liar model.norm.kind 'liar': `parameters` declares encoder.layers.0.feed_forward.inner.weight (64, 32), but "
        "the module has encoder.layers.0.self_attention_residual.norm.bias (32,); make them equal",
        "liar works",
    ]
