"""`zeromt diff` finds what was planted: the update, and the cause."""

import gzip
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from data_pipeline.prepared.dataset import Dataset
from tests.conftest import BUNDLED, Finished, read_pairs
from tests.forked import Forked
from tests.zeromt.inspecting.conftest import SETTINGS

PLANTED = 7
"""The update that the changed pair stands in."""
Diff = Callable[[str, str], Finished]


@dataclass(kw_only=True, frozen=True)
class Runs:
    """Some runs in a folder."""

    root: Path
    forked: Forked

    def prepare(self, name: str, *settings: str) -> Path:
        done = self.forked.zeromt("prepare", "debug", *self.data(name), *settings, cwd=self.root)
        assert done.code == 0, done.err
        return self.root / f"data-{name}"

    def data(self, name: str) -> list[str]:
        files = f"prepare.train={{source: [{name}.en], target: [{name}.fr]}}"
        valid = "prepare.valid={source: [base.en], target: [base.fr]}"
        folder = f"prepare.output={self.root}/data-{name}"
        return [folder, f"prepare.root={self.root}", files, valid, "prepare.record_places=true"]

    def train(self, name: str, *settings: str, data: str = "base", ranks: int = 1, last: int = 12) -> Path:
        more = [f"output={self.root}", f"name={name}", f"training.max_updates={last}", "training.record_pairs=true"]
        arguments = ["debug", *self.data(data), *SETTINGS, "model.dropout=0.1", *more, *settings]
        done = self.forked.trainer(ranks, *arguments, cwd=self.root)
        assert done.code == 0, done.err
        return self.root / name

    def diff(self, one: str, two: str) -> Finished:
        return self.forked.zeromt("diff", str(self.root / one), str(self.root / two), cwd=self.root)


@pytest.fixture(scope="module")
def runs(forked: Forked, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    root = tmp_path_factory.mktemp("diff")
    for side in ("en", "fr"):
        (root / f"base.{side}").write_bytes(gzip.decompress((BUNDLED / f"valid.{side}.gz").read_bytes()))
    found = Runs(root=root, forked=forked)
    found.prepare("base")
    found.train("base")
    return found


def test_the_same_again(runs: Runs) -> None:
    runs.train("again", "stream.workers=1")
    done = runs.diff("base", "again")
    assert done.code == 0, done.err
    assert "the same from update 1 to 12, the last that both have" in done.out


def test_another_seed(runs: Runs) -> None:
    runs.train("seed", "seed=5", last=3)
    done = runs.diff("base", "seed")
    assert done.code == 1, done.err
    assert "pairs: part at update 1 " in done.out
    assert "configuration  seed: 1 in A, 5 in B" in done.out


def test_a_field_that_was_changed_at_a_resume(runs: Runs) -> None:
    """Its first update has the same loss: the weights were the same before it. The log of old runs tells as much."""
    runs.train("field", last=6)
    run = runs.train("field", "optimizer.lr=1e-3")
    for is_old in (False, True):
        if is_old:
            (run / "updates.bin").unlink()
            (run / "history.jsonl").unlink()
        done = runs.diff("base", "field")
        assert done.code == 1, done.err
        assert "pairs: the same throughout" in done.out
        assert "losses: part at update 8 " in done.out
        if not is_old:
            assert "optimizer.lr: 0.003 in A, 0.001 in B" in done.out
            assert "more than rounding" in done.out
        assert ("compared by metrics.jsonl" in done.out) == is_old


def test_one_pair(runs: Runs) -> None:
    lanes = {lane: pairs for (step, lane), pairs in read_pairs(runs.root / "base").items() if step == PLANTED}
    dataset = Dataset.load(runs.root / "data-base")
    lines = (runs.root / "base.fr").read_text().splitlines()
    for pair in (pair for pairs in lanes.values() for pair in pairs):
        row = int(str(dataset.place(pair)).split(":")[1]) - 1
        words = lines[row].split(" ")
        changed = " ".join(reversed(words))
        [was, now] = dataset.tokenizer.encode_target([lines[row], changed])
        if was != now and len(was) == len(now):
            break
    else:
        pytest.fail("no pair of the update can be changed without changing its length")
    lines[row] = changed
    (runs.root / "pair.fr").write_text("".join(f"{line}\n" for line in lines))
    shutil.copy(runs.root / "base.en", runs.root / "pair.en")
    other = f"prepare.tokenizer.path={runs.root}/data-base"
    runs.prepare("pair", other)
    runs.train("pair", other, data="pair", last=9)
    done = runs.diff("base", "pair")
    assert done.code == 1, done.err
    assert "pairs: the same throughout" in done.out
    assert f"losses: part at update {PLANTED} " in done.out
    assert "data           dataset 1: " in done.out
    assert f"1 of the {sum(map(len, lanes.values()))} pairs of update {PLANTED} are others" in done.out
    assert f"pair {pair} " in done.out


def test_other_ranks(runs: Runs) -> None:
    runs.train("ranks", ranks=2, last=5)
    done = runs.diff("base", "ranks")
    assert "pairs: the same throughout" in done.out or done.code == 0
    if done.code:
        assert "ranks: 1 in A, 2 in B" in done.out
        assert "as of another sum's order" in done.out
