"""One checkpoint evaluated on one rank and on two, from a copy of its run for each."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.forked import Forked
from tests.trainer.conftest import TrainedRun

Everywhere = dict[int, list[dict[str, Any]]]


def on_one_and_two(
    trained: TrainedRun, forked: Forked, root: Path, score: Callable[..., Any], *arguments: str
) -> Everywhere:
    """What rank 0 of each number of ranks gets; `score` is called with the world, the configuration and these."""
    found = {}
    for num_ranks in (1, 2):
        shutil.copytree(trained.folder, root / f"{num_ranks}" / "heart")
        config = root / f"{num_ranks}.yaml"
        config.write_text(trained.config.read_text().replace(f"{trained.folder.parent}", f"{root}/{num_ranks}"))
        found[num_ranks] = forked.ranks(num_ranks, score, str(config), *arguments, cwd=root)[0]
    return found
