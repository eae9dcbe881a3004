"""One byte of a checkpoint, anywhere, is another: it is refused, and the file named."""

import random
from pathlib import Path

import pytest

from tests.forked import fork_ranks
from tests.trainer.checkpoint.small_engine import engine, manager, problems
from trainer.ranks.distributed import World


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")

    def task(world: World) -> None:
        manager(folder, world).save(1, engine(1), {"step": 1, "text": "état"}, scores={}, wait=True)

    fork_ranks(2, task)
    return folder / "step-00000001"


def test_a_thousand_random_bytes(checkpoint: Path) -> None:
    draw = random.Random(1)
    paths = sorted(checkpoint.iterdir())
    assert len(paths) == 9
    assert problems(checkpoint) == []
    for trial in range(1000):
        path = paths[trial % len(paths)]
        whole = path.read_bytes()
        position, value = draw.randrange(len(whole)), draw.randrange(1, 256)
        path.write_bytes(whole[:position] + bytes([whole[position] ^ value]) + whole[position + 1 :])
        found = problems(checkpoint)
        path.write_bytes(whole)
        assert len(found) == 1, (path.name, position, value, found)
        assert found[0].startswith(f"{checkpoint}/"), found
        assert path.name in found[0], (path.name, found)
    assert problems(checkpoint) == []


def test_whitespace_of_the_hash_counts_too(checkpoint: Path) -> None:
    path = checkpoint / "manifest.sha256"
    whole = path.read_bytes()
    ends = [whole[:-1] + c for c in (b"\r", b" ", b"\x1c")]
    for broken in (whole[:-1], whole + b"\n", b" " + whole, whole.upper(), *ends):
        path.write_bytes(broken)
        assert "manifest.sha256" in problems(checkpoint)[0], broken
    path.write_bytes(whole)
    assert problems(checkpoint) == []
