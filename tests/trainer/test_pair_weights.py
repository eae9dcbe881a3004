"""Weights of pairs in the loss: the update of plain PyTorch at any number of ranks, and what a weight of 0 leaves."""

import dataclasses
import json
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from configs import RunConfig, UserError, load_run
from data_pipeline.prepared import tables
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.scores import write_scores
from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.pair_weights import WEIGHT_ONE
from data_pipeline.stream.reader import StreamReader
from tests.conftest import Corpus, read_metrics
from tests.forked import Forked
from tests.trainer.many_runs import train_all
from tests.trainer.oracle import plain_run
from trainer.build import BuiltRun, _loss
from trainer.datasets import open_datasets, open_reader
from trainer.ranks.distributed import World
from zeromt.inspecting.found import find_update

SETTINGS = (
    "stream.micro_batches=5",
    "stream.source_tokens=160",
    "stream.target_tokens=160",
    "optimizer.lr=1e-3",
    "schedule.kind=constant",
    "schedule.warmup_updates=0",
    "engine.precision=fp32",
    "training.max_updates=4",
    "training.log_every=1",
    "training.tensorboard=false",
    "training.memory_probe=false",
    "evaluation.every_updates=0",
    "evaluation.max_pairs=1",
    "evaluation.search={max_length_ratio: 0.1, max_length_extra: 1}",
    "checkpoint.every_updates=0",
    "model.dropout=0",
)
SEVERAL = "stream.datasets=[{path: A, loss_weight: qe}, {path: B, loss_weight: 0.25}, {path: C}]"
RUNS = {
    "weights": (SEVERAL,),
    "tokens": (SEVERAL, "training.normalize_by=tokens", "engine.zero_stage=2"),
    "packed": (
        "stream.datasets=[{path: A, loss_weight: qe}]",
        "engine.kernels=cuda",
        "engine.merge_lanes=2",
        "engine.zero_stage=3",
    ),
}
FEW = ("stream.datasets=[{path: A, loss_weight: few}]", "stream.micro_batches=2", "stream.max_rows=4")


@pytest.fixture(scope="module")
def folder(corpus_en_fr: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A, B and C: the corpus three times, A with the scores qe, half (0 or 1), few (mostly 0), holes, log and long."""
    folder = tmp_path_factory.mktemp("weights")
    for name in "ABC":
        shutil.copytree(corpus_en_fr.folder, folder / name)
    pairs = Dataset.load(folder / "A").num_pairs
    random = np.random.default_rng(1)
    qe, half, few = random.random(pairs) * 3, random.integers(0, 2, pairs), random.random(pairs) < 0.06
    qe[random.random(pairs) < 0.3] = 0
    holes = np.where(np.arange(pairs) == 17, np.nan, qe)
    is_long = Dataset.load(folder / "A").lengths[:].max(axis=1) >= 40
    scores = np.stack([qe, half, few, holes, qe - 1.5, np.zeros(pairs), is_long], axis=1).astype(np.float32)
    names = ("qe", "half", "few", "holes", "log", "none", "long")
    write_scores(folder / "A", {name: {"kind": "test"} for name in names}, pairs, [scores])
    return folder


def overrides(folder: Path, corpus: Corpus, name: str, *more: str) -> list[str]:
    own = [one.replace("path: ", f"path: {folder}/") for one in more]
    return [*corpus.overrides, *SETTINGS, *own, f"output={folder}/runs", f"name={name}"]


@pytest.mark.parametrize("num_ranks", [pytest.param(1, marks=pytest.mark.slow), 2, 3])
def test_agrees_with_plain_pytorch(
    num_ranks: int, folder: Path, corpus_en_fr: Corpus, forked: Forked, tmp_path: Path
) -> None:
    runs = {name: overrides(folder, corpus_en_fr, f"{name}-{num_ranks}", *more) for name, more in RUNS.items()}
    forked.ranks(num_ranks, train_all, list(runs.values()), cwd=tmp_path)
    for name, given in runs.items():
        expected = plain_run(load_run("debug", given))
        lines = read_metrics(folder / "runs" / f"{name}-{num_ranks}")
        apart = [abs(line["loss"] / loss - 1) for line, loss in zip(lines, expected.losses, strict=True)]
        print(f"{name}, {num_ranks} ranks: losses are off by at most {max(apart):.1e}")
        assert max(apart) < 1e-5, name
        assert [line["grad_norm"] for line in lines] == pytest.approx(expected.norms, rel=1e-4), name
        assert all(0 < line["loss_weight"] < 3 for line in lines)
        if name == "packed":
            continue
        for line in lines:
            assert line.get("loss_weight/B", 0.25) == 0.25
            assert line.get("loss_weight/C", 1.0) == 1.0
            names = [one for one in "ABC" if line[f"micro_batches/{one}"]]
            mean = sum(line[f"loss_weight/{one}"] * line[f"token_share/{one}"] for one in names)
            assert line["loss_weight"] == pytest.approx(mean)
            parts = {one: line[f"token_share/{one}"] for one in names}
            if name == "weights":
                parts = {one: part * line[f"loss_weight/{one}"] for one, part in parts.items()}
            whole = sum(line[f"loss/{one}"] * part for one, part in parts.items())
            assert line["loss"] == pytest.approx(whole / sum(parts.values()), rel=1e-6)


def leave_out(built: BuiltRun, world: World, *, kept: list[bool]) -> None:
    """Of the run `without`: the pairs of weight 0, from every micro-batch."""
    if built.context.config.name != "without":
        return
    is_kept = np.array(kept)

    def shorter(m: MicroBatch) -> MicroBatch | None:
        rows = is_kept[m.pair_ids]
        arrays = {key: getattr(m, key)[rows] for key in ("pair_ids", "source", "target_input", "target_output")}
        return dataclasses.replace(m, **arrays) if rows.any() else None

    reader = built.context.updates.reader
    fetch = reader.next_update
    reader.next_update = lambda: [None if m is None else shorter(m) for m in fetch()]  # type: ignore[method-assign]


def test_weights_of_0_and_1(folder: Path, corpus_en_fr: Corpus, forked: Forked, tmp_path: Path) -> None:
    """A pair of weight 0 changes counts alone; a weight of 1 changes not a bit."""
    runs = {
        name: overrides(folder, corpus_en_fr, name, f"stream.datasets=[{{path: A{more}}}]")
        for name, more in {
            "zeros": ", loss_weight: half",
            "without": "",
            "ones": ", loss_weight: 1",
            "plain": "",
        }.items()
    }
    kept = (Dataset.load(folder / "A").score("half")[:] > 0).tolist()
    forked.ranks(2, train_all, list(runs.values()), partial(leave_out, kept=kept), cwd=tmp_path)
    lines = {name: read_metrics(folder / "runs" / name) for name in runs}
    for zeros, without, ones, plain in zip(*lines.values(), strict=True):
        assert zeros["pairs"] == ones["pairs"] == plain["pairs"] > without["pairs"]
        assert zeros["loss"] == pytest.approx(without["loss"], rel=2e-6)
        assert zeros["grad_norm"] == pytest.approx(without["grad_norm"], rel=2e-6)
        assert (ones["loss"], ones["nll"], ones["grad_norm"]) == (plain["loss"], plain["nll"], plain["grad_norm"])
        assert "loss_weight" not in plain


def test_updates_without_weight(folder: Path, corpus_en_fr: Corpus, forked: Forked, tmp_path: Path) -> None:
    """They are left out, whichever rank has their pairs; resumed, and found again."""
    given = overrides(folder, corpus_en_fr, "few", *FEW)
    forked.ranks(1, train_all, [[*given, "training.max_updates=3"]], cwd=tmp_path)
    forked.ranks(2, train_all, [[*given, "training.max_updates=6"]], cwd=tmp_path)
    run = folder / "runs" / "few"
    lines = read_metrics(run)
    expected = plain_run(load_run("debug", [*given, "training.max_updates=6"]))
    assert [line["loss"] for line in lines] == pytest.approx(expected.losses, rel=1e-5)
    events = [one for one in read_metrics(run, "event") if one["event"] == "left_out"]
    assert len(events) >= 2
    assert {one["reason"] for one in events} == {"all of its pairs have weight 0"}
    for line in lines:
        digest = (find_update(run, line["step"]).counts.pairs_digest + 2**63) % 2**64 - 2**63
        assert digest == line["pairs_digest"]
    done = forked.zeromt("batch", str(run), "4", "--loss", cwd=tmp_path)
    assert done.code == 0, done.err
    [said] = [line for line in done.out.splitlines() if line.startswith("# loss")]
    assert "a target token of weight 1 under step-00000003" in said
    assert float(said.split()[2]) == pytest.approx(lines[3]["loss"], rel=1e-5)
    done = forked.zeromt("batch", str(run), "4", "--loss", "--json", cwd=tmp_path)
    assert {json.loads(line)["weight"] for line in done.out.splitlines()} == {0.0, 1.0}


def test_nothing_left_to_train_on_ends_the_run(
    folder: Path, corpus_en_fr: Corpus, forked: Forked, tmp_path: Path
) -> None:
    """Where every pair that has a weight is too long: no update would ever look at limits or requests to stop."""
    more = ("stream.datasets=[{path: A, loss_weight: long}]", "stream.on_oversized_pair=drop")
    budgets = ("stream.source_tokens=32", "stream.target_tokens=32")
    given = overrides(folder, corpus_en_fr, "nothing", *more, *budgets)
    done = forked.trainer(1, "debug", *given, cwd=tmp_path)
    assert done.code == 2, done.err
    assert "zeromt: error: stream: a whole pass over the data has nothing to train on" in done.err


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        ("holes", "loss_weight holes of .*A: pair 17 has no such score; .*prepare.filters"),
        ("log", r"loss_weight log of .*A: pair \d+ has -.*; allowed is 0 to 1000"),
        ("none", "loss_weight of .*A: every pair has weight 0"),
        ("0", "loss_weight of .*A: every pair has weight 0"),
        ("absent", "A has no score 'absent'"),
        ("-1", "loss_weight"),
        ("1001", "loss_weight"),
        (".nan", "loss_weight"),
    ],
)
def test_refused(weight: str, said: str, folder: Path, corpus_en_fr: Corpus) -> None:
    given = overrides(folder, corpus_en_fr, "no", f"stream.datasets=[{{path: A, loss_weight: {weight}}}]")
    with pytest.raises(UserError, match=said):
        reader_of(load_run("debug", given))


def reader_of(config: RunConfig) -> StreamReader:
    return open_reader(config, open_datasets(config), rank=0, world_size=1)


@pytest.mark.parametrize("most_bytes", [tables.MAX_IN_MEMORY, 0], ids=["in memory", "in a file"])
def test_weights_follow_their_pairs(
    most_bytes: int, folder: Path, corpus_en_fr: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over epochs, phases with weights of their own, and modifiers."""
    monkeypatch.setattr(tables, "MAX_IN_MEMORY", most_bytes)
    phases = (
        "[{name: one, until: {updates: 9}, datasets: [{path: A, loss_weight: qe}]},"
        " {name: two, datasets: [{path: C, loss_weight: 0.5}, {path: A, loss_weight: half}, {path: B}]}]"
    )
    more = f"phases={phases}", "stream.augment=[{kind: upper_case, probability: 0.5}]", "stream.micro_batches=40"
    reader = reader_of(load_run("debug", overrides(folder, corpus_en_fr, "no", *more)))
    scores = {name: Dataset.load(folder / "A").score(name)[:].astype(np.float64) for name in ("qe", "half")}
    found = set()
    for phase in (0, 1):
        if phase:
            reader.begin_phase(1, epoch=7)
        epochs = {reader.epoch, reader.epoch + 1}
        while reader.epoch in epochs:
            micro_batches = [m for m in reader.next_update() if m is not None]
            if not micro_batches:
                reader.end_epoch()
            for m in micro_batches:
                found.add((phase, m.dataset))
                if (name := {(0, 0): "qe", (1, 0): "half"}.get((phase, m.dataset))) is not None:
                    assert m.weights is not None
                    np.testing.assert_allclose(m.weights / WEIGHT_ONE, scores[name][m.pair_ids], rtol=0, atol=2**-25)
                elif m.dataset == 1:
                    assert m.weights is not None
                    assert set(m.weights.tolist()) == {WEIGHT_ONE // 2}
                else:
                    assert m.weights is None
    reader.close()
    assert found == {(0, 0), (1, 0), (1, 1), (1, 2)}


def test_a_loss_that_takes_no_weights(folder: Path, corpus_en_fr: Corpus) -> None:
    config = load_run("debug", overrides(folder, corpus_en_fr, "no", SEVERAL))
    assert callable(_loss(config))
    other = SimpleNamespace(kind="mine", build=lambda: lambda hidden, weight, bias, targets, *, padding_id: None)
    with pytest.raises(UserError, match=r"loss\.kind: mine takes no weights of pairs"):
        _loss(cast(RunConfig, SimpleNamespace(loss=other, weighs_pairs=True)))
