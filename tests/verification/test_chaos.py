"""The storm, and that it would see a wrong bit and a damaged file."""

import hashlib
import json
import random
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.verification.chaos import damage, verdict
from tests.verification.chaos.job import HOME, Layout
from tests.verification.chaos.verdict import Chain, Findings, Reference
from tests.verification.chaos.watch import Segment, Version
from trainer.runs.layout import step_folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

ALONE = Layout(num_ranks=1, zero_stage=0)


def make_checkpoint(checkpoints: Path, step: int, content: bytes = b"weights") -> Path:
    """What the production code's checkpoints look like from outside, committed by a rename."""
    beside = checkpoints / f"tmp-step-{step:08d}"
    beside.mkdir(parents=True)
    files = {"model-00000-of-00001.safetensors": content, "state.json": b"{}"}
    for name, data in files.items():
        (beside / name).write_bytes(data)
    records = {n: {"bytes": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in files.items()}
    manifest = json.dumps({"files": records}).encode()
    (beside / "manifest.json").write_bytes(manifest)
    (beside / "manifest.sha256").write_text(hashlib.sha256(manifest).hexdigest() + "\n")
    return beside.rename(checkpoints / step_folder(step))


@pytest.mark.parametrize("seed", range(3))
def test_damage_is_seen(seed: int, tmp_path: Path) -> None:
    make_checkpoint(tmp_path, 1)
    folder = make_checkpoint(tmp_path, 2)
    assert damage.whole_steps(tmp_path) == [2, 1]
    damage.damage(folder, random.Random(seed))
    assert damage.whole_steps(tmp_path) == [1]
    assert damage.leftovers(tmp_path) == []


def findings(loss: float) -> list[str]:
    """Of a chain that was interrupted once; `loss` is that of step 12 in its second segment."""

    def segment(layout: Layout, root: Version | None, last: int, at_12: float = 12.0) -> Segment:
        start = root.step if root else 0
        figures = {step: {"loss": at_12 if step == 12 else float(step)} for step in range(start + 1, last + 1)}
        return Segment(launch=1, layout=layout, start=start, root=root, figures=figures)

    root = Version(step=10, digest="10", inode=0, segment=0, copy=None)
    segments = [segment(ALONE, None, 11), segment(ALONE, root, 14, loss)]
    chain = Chain(layout=ALONE, root=None, segments=segments, versions=[root])
    reference = Reference(segment=segment(ALONE, None, 14), versions={10: "10"})
    parent = Reference(segment=segment(HOME, None, 14), versions={})
    found = Findings()
    verdict.compare(chain, reference, parent, found)
    return found.violations


def test_the_last_bit_of_a_loss_is_seen() -> None:
    assert findings(12.0) == []
    (violation,) = findings(12.000000000000002)
    assert "1 of 4 updates differ from the reference, first step 12 in loss" in violation


SHORT = (0.02, 5)
IN_FULL = [pytest.param(15, seed, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]) for seed in (1, 2, 3)]


@pytest.mark.parametrize(("minutes", "seed"), [SHORT, *IN_FULL])
def test_a_storm(minutes: float, seed: int, tmp_path: Path, start: Start) -> None:
    figures_file = str(tmp_path / "figures.json")
    arguments = ("--minutes", str(minutes), "--seed", str(seed), "--work", str(tmp_path), "--json", figures_file)
    begin = time.monotonic()
    done = start(sys.executable, "-m", "tests.verification.chaos", *arguments).finish(850 if minutes < 1 else 3500)
    assert done.code == 0, f"{done.out[-6000:]}\n{done.err[-2000:]}"
    result = json.loads((tmp_path / "figures.json").read_text())
    figures = result["details"]
    assert result["rows"][0]["verdict"] == "nothing was lost"
    assert figures["verdict"]
    assert figures["violations"] == []
    assert figures["faults"]
    assert figures["starts"] >= 2
    assert figures["updates_compared"] == figures["trained_updates"] >= figures["max_updates"] >= 40
    assert figures["checkpoints_compared"] >= 1
    assert figures["storm_seconds"] + figures["references_seconds"] <= time.monotonic() - begin
    assert list(tmp_path.iterdir()) == [tmp_path / "figures.json"]
