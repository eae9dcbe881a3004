"""What a checkpoint may be resumed with, and what `--reset` allows beyond that."""

import dataclasses
from pathlib import Path

import pytest
import torch

from configs import RunConfig, UserError, load_run
from data_pipeline.prepared.dataset import Dataset
from tests.forked import Forked
from tests.trainer.checkpoint.small_engine import manager
from tests.trainer.conftest import TrainedRun
from tests.trainer.stability.engine_checks import make_engine, train
from trainer.checkpoint.format import Checkpoint, CheckpointError, read_checkpoint
from trainer.checkpoint.resume import check_identity, restore_optimizer
from trainer.optimizers.adamw import AdamW
from trainer.ranks.distributed import World


@dataclasses.dataclass
class Resumed:
    checkpoint: Checkpoint
    config: RunConfig
    dataset: Dataset

    def check(
        self, *overrides: str, fingerprints: list[str] | None = None, reset: tuple[str, ...] = (), num_ranks: int = 2
    ) -> str | None:
        """What is refused."""
        config = load_run(str(self.checkpoint.folder / "config.yaml"), overrides)
        found = [self.dataset.fingerprint] if fingerprints is None else fingerprints
        tokenizer = self.dataset.tokenizer
        try:
            check_identity(self.checkpoint, config, tokenizer, found, reset=frozenset(reset), num_ranks=num_ranks)
        except UserError as error:
            return str(error)
        return None


@pytest.fixture(scope="module")
def resumed(trained: TrainedRun) -> Resumed:
    checkpoint = read_checkpoint(trained.folder / "checkpoints" / "step-00000300")
    assert checkpoint.state()["stream"]["update"] > 0, "in the middle of an epoch"
    config = load_run(str(trained.config))
    return Resumed(checkpoint, config, Dataset.load(config.datasets[0].path, config.stream))


def test_the_same_run_is_resumed(resumed: Resumed) -> None:
    assert resumed.check() is None
    assert resumed.check("optimizer.lr=1", "engine.zero_stage=0", "training.max_updates=999", "name=other") is None
    assert resumed.check("model.activation_checkpointing=true") is None


def test_an_optimizer_of_a_number_of_ranks_goes_on_with_no_other(
    resumed: Resumed, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved_on = resumed.checkpoint.manifest["world_size"]
    assert resumed.check(num_ranks=saved_on + 1) is None
    monkeypatch.setattr(AdamW, "elastic", False)
    assert resumed.check(num_ranks=saved_on) is None
    assert resumed.check(num_ranks=saved_on + 1, reset=("optimizer",)) is None
    said = (
        f"optimizer.kind: adamw resumes on as many ranks as it was saved on: {saved_on}, not {saved_on + 1}; train on "
    )
    assert said in (resumed.check(num_ranks=saved_on + 1) or "")


def test_another_architecture_is_refused_field_by_field(resumed: Resumed) -> None:
    for reset in ((), ("data", "optimizer")):
        said = resumed.check("model.feed_forward.d_ff=256", "model.feed_forward=gelu", reset=reset)
        assert said is not None
        assert "\n" not in said
        assert "model.feed_forward.d_ff: 256, the checkpoint has 128" in said
        assert "model.feed_forward.kind: 'gelu'" in said
        assert "--reset" not in said


def test_another_tokenizer_is_refused_whatever_is_reset(resumed: Resumed) -> None:
    manifest = {**resumed.checkpoint.manifest, "fingerprints": {"data": [], "tokenizer": "f" * 64}}
    other = dataclasses.replace(resumed, checkpoint=dataclasses.replace(resumed.checkpoint, manifest=manifest))
    for reset in ((), ("data", "optimizer")):
        said = other.check(reset=reset)
        assert said is not None
        assert "the checkpoint has ffffffffffff" in said
        assert "--reset" not in said


@pytest.mark.parametrize(
    ("overrides", "fingerprints", "words"),
    [
        ([], ["0" * 64], "stream.datasets: fingerprint 000000000000, the checkpoint has "),
        ([], [], "stream.datasets: fingerprint "),
        (["seed=9"], None, "seed: 9, the checkpoint has 1"),
        (["stream.micro_batches=3"], None, "stream.micro_batches: 3, the checkpoint has 2 in the middle of its epoch"),
        (["stream.target_tokens=256"], None, "stream.target_tokens: 256, the checkpoint has 512"),
    ],
)
def test_other_data_are_refused_unless_they_begin_anew(
    overrides: list[str], fingerprints: list[str] | None, words: str, resumed: Resumed
) -> None:
    for reset in ((), ("optimizer",)):
        said = resumed.check(*overrides, fingerprints=fingerprints, reset=reset)
        assert said is not None
        assert words in said
        assert "--reset data" in said
    assert resumed.check(*overrides, fingerprints=fingerprints, reset=("data",)) is None


def go_on_or_begin_anew(world: World) -> None:
    engine = make_engine(2, "bf16", world)
    train(engine, world, updates=3)
    manager(Path(), world).save(3, engine, {}, scores={}, wait=True)
    checkpoint = read_checkpoint(Path("step-00000003"))
    saved = {p.name: (p.weight.clone(), p.moments) for p in engine.parameter_states()}
    assert any(weight.bfloat16().float().ne(weight).any() for weight, _ in saved.values())
    for reset in (False, True):
        again = make_engine(2, "bf16", world)
        restore_optimizer(checkpoint, again, num_steps=3, reset=reset)
        for p in again.parameter_states():
            weight, moments = saved[p.name]
            assert moments is not None
            assert p.moments is not None
            assert p.weight.equal(weight), p.name
            for key, moment in p.moments.items():
                assert moment.equal(torch.zeros_like(moment) if reset else moments[key]), (p.name, key)


def test_the_optimizer_goes_on_or_begins_anew_with_the_same_weights(forked: Forked, tmp_path: Path) -> None:
    """Under bf16, where the weights that the model computes with are not the whole truth."""
    forked.ranks(1, go_on_or_begin_anew, cwd=tmp_path)


def restore_without_moments(world: World) -> None:
    engine = make_engine(0, "fp32", world)
    train(engine, world, updates=1)
    manager(Path(), world).save(1, engine, {}, scores={}, wait=True)
    engine.moments = {name: {**shapes, "max_exp_avg_sq": shapes["exp_avg"]} for name, shapes in engine.moments.items()}
    with pytest.raises(CheckpointError, match=r"max_exp_avg_sq/.* of the optimizer's state is missing"):
        restore_optimizer(read_checkpoint(Path("step-00000001")), engine, num_steps=1)


def test_missing_moments_are_named(forked: Forked, tmp_path: Path) -> None:
    forked.ranks(1, restore_without_moments, cwd=tmp_path)
