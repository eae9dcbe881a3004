"""What ranks settle before the first update is the same on all of them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from configs import load_run
from tests.forked import Forked
from trainer.ranks.distributed import World
from trainer.stability.memory import settle_memory

WHY = "attention without padding needs a GPU of compute capability 8.0 or newer"


def settled(world: World) -> tuple[str, str, int]:
    """As a rank, of which rank 1 alone has a card that cannot pack: layout, why it is padded, lanes of a pass."""
    kind, why = ("packed", "") if world.rank == 0 else ("padded", WHY)
    engine: Any = SimpleNamespace(layout_kind=kind, why_padded=why, merged_lanes=0)
    dataset: Any = SimpleNamespace(blocks={"longest_source": np.array([5]), "longest_target": np.array([6])})
    config = load_run("debug", ["training.memory_probe=false", "stream.micro_batches=8"])
    settle_memory(config, [dataset], engine, cast(Any, None), world, None)
    return engine.layout_kind, engine.why_padded, engine.merged_lanes


def test_ranks_on_cards_of_two_generations_agree_on_the_layout(tmp_path: Path, forked: Forked) -> None:
    """Else one would try packed lanes as one, by updates of the engine, while the other is past that already."""
    assert forked.ranks(2, settled, cwd=tmp_path) == [("padded", WHY, 1)] * 2
