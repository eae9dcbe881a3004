"""Parts of a model in one file outside the repository: trained, planned for, searched, exported or refused by name."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Finished, read_metrics
from tests.forked import Forked
from tests.small import small_runs
from tests.trainer.their_parts import THEIRS

ATTENTION = "model.attention={kind: bare, temperature: 0.5}"
OTHERS = (
    "model.feed_forward={kind: geglu, d_ff: 24}", "model.positions={kind: half_rotary, base: 500}",
    "model.norm=mean_norm", "model.residual=rezero", "loss={kind: focal, gamma: 1.5}",
)  # fmt: skip
"""All but the attention go together."""
SETTINGS = (
    "training.max_updates=2", "training.tensorboard=false", "training.ema_decay=0", "evaluation.max_pairs=2",
    "evaluation.search={max_length_extra: 2, max_length_ratio: 0.1}",
)  # fmt: skip
WRONG = '''
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


@component("norm", "silent")
class Silent(Norm):
    """Says nothing of itself."""

    def build(self, width):
        from torch import nn

        return nn.LayerNorm(width)
'''
Zeromt = Callable[..., Finished]


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of somebody else's, with a file of theirs and a dataset."""
    folder = Path(shutil.copytree(small_runs(), tmp_path_factory.mktemp("user") / "folder"))
    (folder / "theirs.py").write_text(THEIRS + WRONG)
    (folder / "text.en").write_text("A cat.\n")
    return folder


@pytest.fixture(scope="module")
def zeromt(user: Path, forked: Forked) -> Zeromt:
    return lambda *arguments: forked.zeromt(*arguments, "--plugins", "theirs.py", cwd=user)


@pytest.fixture(scope="module")
def trained(zeromt: Zeromt, user: Path) -> dict[str, Path]:
    """Runs of two updates, with their attention and with all that goes together."""
    for name, settings in (("attention", (ATTENTION,)), ("others", OTHERS)):
        done = zeromt("train", "small.yaml", *SETTINGS, *settings, f"name={name}")
        assert done.code == 0, done.err
    return {name: user / "runs" / name for name in ("attention", "others")}


def test_each_trains_and_is_searched_with(trained: dict[str, Path]) -> None:
    for run in trained.values():
        assert all(math.isfinite(line["loss"]) for line in read_metrics(run))
        assert read_metrics(run, "evaluation")


def test_a_plan_needs_the_costs_of_each(zeromt: Zeromt) -> None:
    gpus = ("--nodes", "1", "--gpus-per-node", "2", "--gpu-memory", "16GB")
    done = zeromt("plan", "small.yaml", *gpus, *OTHERS)
    assert done.code == 0, done.err
    done = zeromt("plan", "small.yaml", *gpus, "model.norm=silent")
    assert "model.norm.kind: 'silent' does not state its activation_bytes, which a plan needs; add" in done.err


def test_exports_name_all_that_a_program_has_not(zeromt: Zeromt, trained: dict[str, Path]) -> None:
    kinds = {"feed_forward": "geglu", "positions": "half_rotary", "norm": "mean_norm", "residual": "rezero"}
    for program, has in (("huggingface", ()), ("ctranslate2", ("feed_forward",))):
        done = zeromt("export", str(trained["others"]), "--format", program, "-o", f"as-{program}")
        for name, kind in kinds.items():
            assert (f"model.{name}.kind: '{kind}'; allowed is " in done.err) == (name not in has), done.err
        assert done.code == 2


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("model.attention=forgetful", "model.attention: forgetful: with teacher forcing and step by step"),
    ],
)
def test_what_does_not_do_what_it_says_is_refused_before_update_1(
    setting: str, says: str, zeromt: Zeromt, user: Path
) -> None:
    done = zeromt("train", "small.yaml", *SETTINGS, setting, "name=wrong")
    assert done.code == 2
    assert f"zeromt: error: {says}" in done.err
    assert not (user / "runs" / "wrong" / "metrics.jsonl").exists()
