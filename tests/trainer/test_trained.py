"""What is frozen stays to the bit and costs nothing, and may change at a resume. Its updates: test_oracle.py."""

from pathlib import Path
from typing import Any

import torch

from tests.conftest import Corpus
from tests.forked import Forked
from tests.trainer.many_runs import train_all
from tests.trainer.test_oracle import FROZEN, is_frozen
from trainer.checkpoint.format import read_checkpoint
from trainer.loop import Trainer
from trainer.ranks.distributed import World
from trainer.runs.layout import checkpoint_folder

SETTINGS = (
    "stream.source_tokens=256", "stream.target_tokens=256", "training.tensorboard=false",
    "evaluation.every_updates=0", "evaluation.max_pairs=2",
)  # fmt: skip


def stored(run: Path, step: int) -> dict[str, torch.Tensor]:
    """What the optimizer keeps."""
    return dict(read_checkpoint(checkpoint_folder(run, step)).tensors("optimizer"))


def look(world: World, runs: list[list[str]]) -> list[dict[str, Any]]:
    """As a rank: train each, and say what became of the weights, and how many numbers the optimizer keeps."""
    found: list[dict[str, Any]] = []

    def before(built: Trainer, _: World) -> None:
        engine: Any = built.run.engine
        fit = built.fit
        weights = {state.name: state.weight.clone() for state in engine.parameter_states()}

        def fit_and_look() -> Any:
            end = fit()
            after = {state.name: state for state in engine.parameter_states()}
            kept = [t for state in engine._states.optimizer.state.values() for key, t in state.items() if key != "step"]
            frozen = [p for name, p in engine._model.named_parameters() if name not in engine.trained]
            found.append(
                {
                    "same": {name for name, weight in weights.items() if torch.equal(after[name].weight, weight)},
                    "moments": {name for name, state in after.items() if state.moments},
                    "bytes": sum(t.numel() * t.element_size() for t in kept),
                    "gradients": sum(p.grad is not None or p.requires_grad for p in frozen),
                    "sizes": engine.parameter_sizes(),
                }
            )
            return end

        built.fit = fit_and_look  # type: ignore[method-assign]

    train_all(world, runs, before)
    return found


def test_what_is_frozen_stays_to_the_bit_and_has_no_moments(
    corpus_en_fr: Corpus, forked: Forked, tmp_path: Path
) -> None:
    common = [*corpus_en_fr.overrides, *SETTINGS, *FROZEN, f"output={tmp_path}", "engine.precision=bf16"]
    names = [f"stage-{stage}" for stage in range(4)]
    cases = [[*common, "training.max_updates=5", f"name={name}", f"engine.zero_stage={name[-1]}"] for name in names]
    ranks = forked.ranks(2, look, cases, cwd=tmp_path)
    for stage, name in enumerate(names):
        [one, other] = (rank[stage] for rank in ranks)
        trained = {name for name in one["sizes"] if not is_frozen(name)}
        assert one["same"] == other["same"] == one["sizes"].keys() - trained, stage
        assert one["moments"] == trained, stage
        assert not one["gradients"]
        size = 8 * sum(one["sizes"][name] for name in trained)
        held = one["bytes"] + other["bytes"]
        fill = 8 * 2 * 4 * len(one["sizes"])  # so much may be padding
        assert size <= held <= size + fill, stage  # in bf16 stage 0 is stage 1
        assert sum(t.nbytes for t in stored(tmp_path / name, 5).values()) == size, stage
