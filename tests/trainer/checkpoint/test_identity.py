"""What a checkpoint may be resumed with, and what `--reset` allows beyond that."""

import dataclasses
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import torch

from configs import UserError, load_run
from data_pipeline.prepared.dataset import Dataset
from tests.forked import Forked
from tests.trainer.checkpoint.small_engine import Saving
from tests.trainer.conftest import TrainedRun
from tests.trainer.stability.engine_checks import make_engine, train
from trainer.checkpoint.format import CheckpointError, read_whole
from trainer.checkpoint.resume import check_identity, restore_optimizer
from trainer.ranks.distributed import World

Refused = Callable[..., str]


@pytest.fixture(scope="module")
def refused(trained: TrainedRun) -> Refused:
    """What is refused where a checkpoint in the middle of an epoch is resumed with overrides; nothing is empty."""
    saved = read_whole(trained.folder / "checkpoints" / "step-00000300")
    assert saved.state()["stream"]["update"] > 0
    config = load_run(str(trained.config))
    dataset = Dataset.load(config.datasets[0].path, config.stream)

    def check(*overrides: str, reset: Collection[str] = (), data: str = "", **manifest: Any) -> str:
        checkpoint = dataclasses.replace(saved, manifest={**saved.manifest, **manifest})
        now = load_run(str(saved.folder / "config.yaml"), overrides)
        fingerprints = [data or dataset.fingerprint]
        try:
            check_identity(checkpoint, now, dataset.tokenizer, fingerprints, reset=set(reset))
        except UserError as error:
            return str(error)
        return ""

    return check


def test_the_same_run_is_resumed(refused: Refused) -> None:
    assert not refused("optimizer.lr=1", "engine.zero_stage=0", "training.max_updates=999", "name=other")
    assert not refused("model.activation_checkpointing=true")


def test_another_architecture_is_refused_field_by_field(refused: Refused) -> None:
    said = refused("model.feed_forward.d_ff=256", "model.feed_forward=gelu", reset=("data", "optimizer"))
    assert "\n" not in said
    assert "model.feed_forward.d_ff: 256, the checkpoint has 128" in said
    assert "model.feed_forward.kind: 'gelu'" in said
    assert "--reset" not in said


def test_another_tokenizer_is_refused_whatever_is_reset(refused: Refused) -> None:
    said = refused(fingerprints={"data": [], "tokenizer": "f" * 64}, reset=("data", "optimizer"))
    assert "the checkpoint has ffffffffffff" in said
    assert "--reset" not in said


@pytest.mark.parametrize(
    ("overrides", "data", "words"),
    [
        ([], "0" * 64, "stream.datasets: fingerprint 000000000000, the checkpoint has "),
        (["seed=9"], "", "seed: 9, the checkpoint has 1"),
        (["stream.micro_batches=3"], "", "stream.micro_batches: 3, the checkpoint has 2 in the middle of its epoch"),
        (["stream.target_tokens=256"], "", "stream.target_tokens: 256, the checkpoint has 512"),
    ],
)
def test_other_data_are_refused_unless_they_begin_anew(
    overrides: list[str], data: str, words: str, refused: Refused
) -> None:
    said = refused(*overrides, data=data, reset=("optimizer",))
    assert words in said
    assert "--reset data" in said
    assert not refused(*overrides, data=data, reset=("data",))


def test_other_parameters_are_trained_with_new_moments_alone(refused: Refused) -> None:
    said = refused("training.freeze=[encoder]")
    assert "training.freeze: ['encoder'], the checkpoint has []; set training.freeze=[], or begin with new" in said
    assert not refused("training.freeze=[encoder]", reset=("optimizer",))


def go_on_or_begin_anew(world: World) -> None:
    engine = make_engine(2, "bf16", world)
    train(engine, world, updates=3)
    Saving(Path("run"), world, engine, asynchronous=False).begin(3)
    checkpoint = read_whole(Path("run", "checkpoints", "step-00000003"))
    saved = {p.name: (p.weight.clone(), p.moments or {}) for p in engine.parameter_states()}
    assert any(weight.bfloat16().float().ne(weight).any() for weight, _ in saved.values())
    for reset in (False, True):
        again = make_engine(2, "bf16", world)
        restore_optimizer(checkpoint, again, num_steps=3, reset=reset)
        for p in again.parameter_states():
            weight, moments = saved[p.name]
            assert p.weight.equal(weight), p.name
            assert p.moments
            for key, moment in p.moments.items():
                assert moment.equal(torch.zeros_like(moment) if reset else moments[key]), (p.name, key)
    engine.moments = {name: {**shapes, "max_exp_avg_sq": shapes["exp_avg"]} for name, shapes in engine.moments.items()}
    with pytest.raises(CheckpointError, match=r"max_exp_avg_sq/.* of the optimizer's state is missing"):
        restore_optimizer(checkpoint, engine, num_steps=3)


def test_the_optimizer_goes_on_or_begins_anew_with_the_same_weights(forked: Forked, tmp_path: Path) -> None:
    """Under bf16, where the weights that the model computes with are not the whole truth."""
    forked.ranks(1, go_on_or_begin_anew, cwd=tmp_path)
