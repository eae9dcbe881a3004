"""The storm's instruments: each of them must see what it is there to see."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from tests.verification.chaos import damage, job, verdict
from tests.verification.chaos.job import HOME, Layout
from tests.verification.chaos.moments import Deck
from tests.verification.chaos.verdict import Chain, Findings, Reference
from tests.verification.chaos.watch import Segment, Version, Watch
from tests.waiting import wait_until
from trainer.runs.layout import step_folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

ALONE = Layout(num_ranks=1, zero_stage=0)


def line(step: int, loss: float, **figures: Any) -> str:
    return json.dumps({"kind": "train", "step": step, "loss": loss, "tokens_per_second": random.random(), **figures})


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


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    watch = Watch(tmp_path / "run", tmp_path / "aside")
    yield watch
    watch.finish()


def test_segments_are_seen_through_resumes(tmp_path: Path, watch: Watch) -> None:
    run = tmp_path / "run"
    run.mkdir()
    metrics = run / "metrics.jsonl"
    watch.begin_launch(1, HOME)
    first = [line(step, 0.1 * step) for step in (1, 2, 3)]
    metrics.write_text("\n".join(first) + "\n" + line(4, 0.4)[:20])  # killed while it wrote
    make_checkpoint(run / "checkpoints", 2)
    watch.settle()
    watch.begin_launch(2, ALONE)
    beside = run / "metrics.jsonl.tmp"
    beside.write_text("\n".join(first[:2]) + "\n")
    beside.replace(metrics)
    wait_until(lambda: len(watch.segments) == 2)
    failed = json.dumps({"kind": "event", "event": "checkpoint", "step": 3, "succeeded": False})
    with metrics.open("a") as file:
        file.write("\n".join([line(3, 0.3), failed, line(4, 0.5)]) + "\n")
    watch.settle()
    assert [(s.launch, s.layout, s.start, s.last) for s in watch.segments] == [(1, HOME, 0, 3), (2, ALONE, 2, 4)]
    assert [f["loss"] for f in watch.segments[1].figures.values()] == [0.3, 0.5]
    assert watch.segments[0].root is None
    assert watch.segments[1].root is watch.versions[0]
    assert watch.versions[0].segment == 0
    assert watch.num_failed_saves == 1
    assert watch.problems == []


def test_steps_that_do_not_follow_one_another_are_a_problem(tmp_path: Path, watch: Watch) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text(line(1, 0.1) + "\n" + line(3, 0.3) + "\n")
    watch.settle()
    assert watch.problems == ["launch 0: step 3 follows step 1"]


def test_a_resume_without_a_checkpoint_is_a_problem(tmp_path: Path, watch: Watch) -> None:
    (tmp_path / "run").mkdir()
    metrics = tmp_path / "run" / "metrics.jsonl"
    kept = line(1, 0.1) + "\n"
    metrics.write_text(kept + line(2, 0.2) + "\n")
    watch.settle()
    (tmp_path / "run" / "new").write_text(kept)
    (tmp_path / "run" / "new").replace(metrics)
    watch.settle()
    assert watch.problems == ["launch 0 went on from step 1, of which no checkpoint was seen"]


def test_copies_outlive_retention_and_damage(tmp_path: Path, watch: Watch) -> None:
    checkpoints = tmp_path / "run" / "checkpoints"
    folder = make_checkpoint(checkpoints, 5)
    watch.settle()
    damage.damage(folder, random.Random(1))
    (copy,) = [v.copy for v in watch.versions]
    assert copy is not None
    assert damage.is_whole(copy)
    assert not damage.is_whole(folder)
    folder.rename(checkpoints / "tmp-delete-step-00000005")
    make_checkpoint(checkpoints, 5, b"other weights")
    watch.settle()
    assert len({v.digest for v in watch.versions}) == 2
    watch.drop_copies()
    assert not copy.exists()
    assert watch.versions[1].copy is not None


@pytest.mark.parametrize("seed", range(20))
def test_damage_is_seen(seed: int, tmp_path: Path) -> None:
    make_checkpoint(tmp_path, 1)
    folder = make_checkpoint(tmp_path, 2)
    assert damage.whole_steps(tmp_path) == [2, 1]
    damage.damage(folder, random.Random(seed))
    assert damage.whole_steps(tmp_path) == [1]
    assert damage.leftovers(tmp_path) == []


def test_leftovers_are_found(tmp_path: Path) -> None:
    names = ["tmp-step-00000001", "metrics.jsonl.tmp", ".shared-0af", "status.json.123", "STOP"]
    for name in [*names, "status.json", "metrics.jsonl", "run.lock"]:
        (tmp_path / name).touch()
    assert damage.leftovers(tmp_path) == sorted(str(tmp_path / name) for name in names)


def test_a_full_disk_is_one_process_s_and_passes(tmp_path: Path) -> None:
    code = """
import sys
for line in sys.stdin:
    try:
        with open("file", "wb") as file:
            file.write(bytes(100_000))
        print("written", flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    answers = []
    for limit in (None, 50_000, None):
        damage.limit_files([process.pid], limit)
        process.stdin.write("\n")
        process.stdin.flush()
        answers.append(process.stdout.readline().strip())
    process.communicate()
    assert answers == ["written", "File too large", "written"]


def test_processes_are_found_by_their_mark_whoever_their_parent_is() -> None:
    mark = f"{os.getpid()}-test"
    sleep = "import time; time.sleep(60)"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {sleep!r}], start_new_session=True)"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, job.MARK: mark}, check=True)
    launch = object.__new__(job.Launch)
    launch.mark = mark
    wait_until(lambda: len(launch.processes()) == 1)
    for process in launch.processes():
        assert job.send(process.pid, signal.SIGKILL)
    assert launch.wait_for_all(10) == []


def test_a_deck_is_drawn_to_its_end() -> None:
    deck = Deck({"one": 1, "two": 2}, random.Random(3))
    drawn = [deck.draw() for _ in range(9)]
    assert [sorted(drawn[i : i + 3]) for i in (0, 3, 6)] == [["one", "two", "two"]] * 3


def segment(layout: Layout, root: Version | None, last: int, loss: Callable[[int], float] = float) -> Segment:
    start = root.step if root else 0
    figures = {step: {"loss": loss(step)} for step in range(start + 1, last + 1)}
    return Segment(launch=1, layout=layout, start=start, root=root, figures=figures)


def version(step: int, segment: int, digest: str = "") -> Version:
    return Version(step=step, digest=digest or f"{step}", inode=0, segment=segment, copy=None)


def test_chains_go_on_where_the_layout_does() -> None:
    early, late = version(10, 0), version(20, 1)
    segments = [
        segment(HOME, None, 15),
        segment(HOME, early, 25),
        segment(ALONE, late, 30),
        segment(HOME, early, 26),  # the late one was lost
        segment(HOME, late, 20),  # killed before its first update
    ]
    home, alone = verdict.chains_of(segments, [early, late], max_updates=28)
    assert [(s.start, s.last) for s in home.segments] == [(0, 15), (10, 25), (10, 26)]
    assert home.versions == [early, late]
    assert home.last == 20 + verdict.NUM_ELSEWHERE, "it must reach beyond the change of layout"
    assert (alone.layout, alone.root, alone.last) == (ALONE, late, 30)
    assert alone.parent is home


def test_another_version_of_a_step_is_another_chain() -> None:
    first, redone = version(10, 0, "first"), version(10, 1, "redone")
    segments = [segment(HOME, None, 15), segment(ALONE, None, 12), segment(HOME, redone, 20)]
    home, alone, again = verdict.chains_of(segments, [first, redone], max_updates=20)
    assert again.layout == home.layout
    assert again.root is redone
    assert again.parent is alone


def findings(loss: float, *, digest: str = "10", elsewhere: float = 12.0) -> list[str]:
    """Of a chain that was interrupted once; `loss` is that of step 12 in its second segment."""
    root = version(10, 0)
    chain = Chain(layout=ALONE, root=None, segments=[segment(ALONE, None, 11)], versions=[root])
    chain.segments.append(segment(ALONE, root, 14, lambda step: loss if step == 12 else step))
    reference = Reference(segment=segment(ALONE, None, 14), versions={10: digest})
    parent = Reference(segment=segment(HOME, None, 14, lambda s: elsewhere if s == 12 else s), versions={})
    found = Findings()
    verdict.compare(chain, reference, parent, found)
    assert (found.num_updates, found.num_checkpoints, found.num_elsewhere) == (15, 1, 1)
    return found.violations


def test_what_equals_its_reference_is_found_equal() -> None:
    assert findings(12.0) == []
    assert findings(12.0, elsewhere=12 * (1 + 9e-6)) == []


def test_the_last_bit_of_a_loss_is_seen() -> None:
    (violation,) = findings(12.000000000000002)
    assert "1 of 4 updates differ from the reference, first step 12 in loss" in violation


def test_other_weights_are_seen() -> None:
    (violation,) = findings(12.0, digest="others")
    assert "the checkpoint of step 10 is not the reference's" in violation


def test_another_layout_s_loss_may_be_off_by_rounding_only() -> None:
    (violation,) = findings(12.0, elsewhere=12 * (1 + 2e-5))
    assert "the loss of step 12 is off by 2.0e-05" in violation


def write_run(run: Path, pairs: dict[int, list[int]]) -> None:
    """A run of two lanes, with epochs of two updates."""
    (run / "pairs").mkdir(parents=True)
    with (run / "metrics.jsonl").open("w") as metrics, (run / "pairs" / "rank-00000.jsonl").open("w") as file:
        for step, identifiers in pairs.items():
            epoch, update = divmod(step - 1, 2)
            metrics.write(line(step, 0.1, epoch=epoch, update=update, pairs_digest=sum(identifiers)) + "\n")
            for lane in (0, 1):
                file.write(json.dumps({"step": step, "lane": lane, "pairs": identifiers[lane::2]}) + "\n")


TRUE = {1: [0, 1], 2: [2, 3], 3: [3, 1]}


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        (TRUE, None),
        ({**TRUE, 2: [2, 1]}, "epoch 0: a pair was used more than once"),
        ({**TRUE, 2: [2]}, "epoch 0: 1 pairs were not used"),
        ({**TRUE, 3: [3, 3]}, "epoch 1: a pair was used more than once"),
        ({**TRUE, 3: [1, 3]}, "2 entries of pairs/ differ, first of step 3, lane 0"),
    ],
)
def test_wrong_pairs_are_seen(pairs: dict[int, list[int]], problem: str | None, tmp_path: Path) -> None:
    write_run(tmp_path / "undisturbed", TRUE)
    write_run(tmp_path / "storm", pairs)
    problems, num_epochs = verdict.compare_pairs(tmp_path / "storm", tmp_path / "undisturbed", [], 4)
    assert num_epochs == 1
    assert problem in problems if problem else problems == []


def test_other_pairs_in_an_update_that_was_redone_are_seen(tmp_path: Path) -> None:
    for name in ("storm", "undisturbed"):
        write_run(tmp_path / name, TRUE)
    lost = Segment(launch=4, layout=HOME, start=1, root=None)
    lost.figures[2] = {"epoch": 0, "update": 1, "pairs_digest": 6}
    problems, _ = verdict.compare_pairs(tmp_path / "storm", tmp_path / "undisturbed", [lost], 4)
    assert problems == ["launch 4: step 2 held other pairs than the undisturbed run's"]


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
