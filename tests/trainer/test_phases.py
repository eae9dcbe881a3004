"""Phases: every place that names one, where they end, and what may change. Resumed: test_everything.py."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from configs import ConfigError, RunConfig, load_run
from tests.conftest import read_metrics
from tests.everything import LAST, everything
from tests.forked import Forked
from trainer.checkpoint.state import PhaseState, TrainerState
from trainer.limits import Limits
from trainer.phases import next_is_due, phase_end
from zeromt.cli.main import main

BEGINNINGS = [(0, "both"), (7, "one"), (10, "flat"), (18, "last")]
"""Updates done before each phase of the run with everything on."""


@pytest.fixture(scope="module")
def whole(forked: Forked) -> Path:
    return everything(forked)


def test_every_place_names_the_phase(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = read_metrics(whole)
    for number, (first, name) in enumerate(BEGINNINGS):
        end = BEGINNINGS[number + 1][0] if number < 3 else LAST
        own = [line for line in lines if first < line["step"] <= end]
        assert {(line["phase"], line["phase_number"]) for line in own} == {(name, number + 1)}
    events = [line for line in read_metrics(whole, "event") if line["event"] == "phase"]
    assert [(line["step"], line["phase"]) for line in events] == BEGINNINGS[1:]
    assert {line["step"]: line["phase"] for line in read_metrics(whole, "evaluation")} == {
        step: [name for first, name in BEGINNINGS if first < step][-1] for step in range(3, LAST + 1, 3)
    }
    # Schedules of their own begin with their phases, and that of the run goes on meanwhile.
    assert [line["lr"] for line in lines[7:10]] == pytest.approx([3e-3 * (4 / n) ** 0.5 for n in (7, 8, 9)])
    assert [line["lr"] for line in lines[10:14]] == pytest.approx([1e-3, 2e-3, 3e-3, 3e-3])
    assert [line["lr"] for line in lines[18:]] == pytest.approx([3e-3] * 6 + [1.5e-3] * 3), "the plateau's"
    assert main(["status", str(whole)]) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (shown["phase"], shown["done"]) == ("last", f"{LAST} of 99 updates ({LAST / 99:.1%})")
    assert main(["inspect", str(whole / "checkpoints" / "step-00000015")]) == 0
    assert "epoch 2, update 5, phase flat since step 10" in capsys.readouterr().out


def test_other_phases_at_a_resume(whole: Path, forked: Forked, tmp_path: Path) -> None:
    """Those that follow may change. The present one, and its data, may not."""
    place = Path(shutil.copytree(whole.parents[1], tmp_path / "place"))
    run = place / "runs" / "everything"
    (run / "checkpoints" / "latest").write_text("step-00000015\n")
    for step in (20, 25, LAST):
        shutil.rmtree(run / "checkpoints" / f"step-{step:08d}")
    config = str(run / "config.yaml")
    for change, said in (
        ("phases.2.name=other", "number 3; allowed is a list with it there, or --reset data"),
        ("phases=[]", "phases: none, and"),
        ("phases.2.datasets=[{path: dataset_b}]", "stream.datasets: fingerprint"),
        ("phases.2.augment=[upper_case]", "stream.augment: is not what epoch 2 was begun with"),
        ("phases.3.datasets=[{path: nowhere}]", "phases.3.datasets: "),
    ):
        done = forked.trainer(1, config, change, cwd=place)
        assert done.code == 2, done.err
        assert said in done.err
    changes = [
        "phases.2.until={plateau: null, updates: 6}",
        "phases.3.until={passes: 1}",
        "phases.3.datasets=[{path: dataset_b}]",
    ]
    done = forked.trainer(1, config, *changes, cwd=place)
    assert done.code == 0, done.err
    assert "phase last (4 of 4) begins with epoch 3: 6 updates of flat are done" in done.out
    assert "finished (phases: 1 pass over the data of last is done, the last)" in done.out


def config_of(*given: str) -> RunConfig:
    phases = [one for one in given if one.startswith("{")]
    return load_run("debug", [f"phases=[{', '.join(phases)}]", *given[len(phases) :]])


@pytest.mark.parametrize(
    ("number", "step", "epoch", "said"),
    [
        (0, 4, 7, None),
        (0, 5, 7, "5 updates of a are done"),
        (1, 59, 9, None),
        (1, 59, 10, "2 passes over the data of b are done"),
        (2, 59, 100, None),
        (3, 59, 9, "1 pass over the data of d is done"),
    ],
)
def test_updates_and_passes(number: int, step: int, epoch: int, said: str | None) -> None:
    until = ["{updates: 5}", "{passes: 2}", "{updates: 100}", "{passes: 1}"]
    config = config_of(*(f"{{name: {name}, until: {one}}}" for name, one in zip("abcd", until, strict=True)))
    begun = PhaseState(number=number, name="abcd"[number], step=0, epoch=8 if number else 0, applied=0)
    state = TrainerState(step=step, phase=begun)
    assert phase_end(config, state, epoch) == said
    assert next_is_due(config, state, epoch) == (None if number == 3 else said)
    over = [limit.reason for limit in Limits(config, state).reached(epoch)]
    assert over == (["phases: 1 pass over the data of d is done, the last"] if number == 3 else [])


@pytest.mark.parametrize(
    ("scores", "is_over"),
    [
        ({10: 9.0, 20: 9.0, 30: 9.0, 40: 9.0}, False),  # of the phase before, and of the weights that it left
        ({40: 9.0, 50: 5.0, 60: 4.0, 70: 3.0}, True),
        ({50: 5.0, 60: 5.0, 70: 6.0}, False),
        ({50: 5.0, 60: 5.4, 70: 5.5}, True),  # not better by more than 0.5
    ],
)
def test_plateau(scores: dict[int, float], is_over: bool) -> None:
    flat = "{name: b, until: {plateau: {patience: 2, min_delta: 0.5}}}"
    config = config_of("{name: a, until: {updates: 40}}", flat, "{name: c}")
    phase = PhaseState(number=1, name="b", step=40, epoch=3, applied=40)
    state = TrainerState(step=70, scores={"bleu": scores}, phase=phase)
    assert (phase_end(config, state, 3) is not None) == is_over


def test_a_schedule_that_ends_with_its_phase() -> None:
    second = "{name: b, until: {updates: 12}, schedule: {kind: linear, warmup_updates: 2}}"
    config = config_of("{name: a, until: {updates: 10}}", second)
    phase = PhaseState(number=1, name="b", step=10, epoch=1, applied=9)
    state = TrainerState(step=10, skipped_updates=1, phase=phase)
    limits = Limits(config, state)
    assert limits.rate(0.0, 10) == pytest.approx(config.optimizer.lr / 2)
    assert limits.schedule_end(0.0, 10) == 12, "what was skipped before it does not count"
    state.step = 21
    assert 0 <= limits.rate(0.0, 21) < 0.15 * config.optimizer.lr
    assert Limits(dataclasses.replace(config, phases=[]), state).rate(0.0, 21) > 0.5 * config.optimizer.lr


A = "{name: a, until: {updates: 5}}"


@pytest.mark.parametrize(
    ("phases", "said"),
    [
        ((A, "{name: a}"), "phases.1.name: a is the name of another"),
        (("{name: a}", "{name: b}"), "phases.0.until: missing, but b follows"),
        (("{name: a, until: {updates: 5, passes: 1}}",), "phases.0.until.updates: updates and passes given"),
        (("{name: a, until: {}}",), "phases.0.until.updates: nothing given"),
        (("{name: a, until: {updates: 0}}",), "phases.0.until.updates: 0; allowed is greater than 0"),
        (("{name: a, datasets: []}",), "phases.0.datasets: none; name at least one"),
        (("{name: a, datasets: [{path: x}, {path: x}]}",), "phases.0.datasets: x is named more than once"),
        (("{name: a, datasets: [{path: x, weigth: 2}]}",), "phases.0.datasets.0.weigth: unknown key; did you mean"),
        (("{name: a, datasets: [{path: x, weight: 2}], temperature: 3}",), "phases.0.temperature: 3 with weights"),
        (("{name: a, augment: [{kind: typoz}]}",), "phases.0.augment.0.kind: there is no kind 'typoz'; did you"),
        (
            ("{name: a, datasets: [{path: x}], augment: [{kind: typos, datasets: [y]}]}",),
            "phases.0.augment.0.datasets: y is none that the run names",
        ),
        (
            ("{name: a, datasets: [{path: x}], augment: [bpe_dropout, typos]}",),
            "phases.0.augment.0: bpe_dropout stands before typos",
        ),
        (("{name: a, until: {plateau: {metric: comet}}}",), "phases.0.until.plateau.metric: comet is not a figure of"),
        (("{name: a, until: {passes: 1}, schedule: cosine}", "{name: b}"), "phases.0.schedule: cosine ends with the"),
        (("{name: a, until: {updates: 5}, schedule: {kind: linear, warmup_updates: 5}}",), "less than the phase's 5"),
        (("{name: a, schedule: {kind: linear, ends_with: minutes}}",), "phases.0.schedule.ends_with: minutes; in a"),
        (("{until: {updates: 5}}",), "phases.0.name: missing"),
        (
            ("{name: a, until: {plateau: {}}}", "{name: b}", "evaluation.every_updates=0"),
            "phases.0.until.plateau: with evaluation.every_updates=0",
        ),
        (
            ("{name: c, datasets: [{path: x}]}", "stream.augment=[{kind: typos, datasets: [y]}]"),
            "stream.augment.0.datasets: y is none that the run names",
        ),
    ],
)  # fmt: skip
def test_refused(phases: tuple[str, ...], said: str) -> None:
    """Phases, and settings beside them."""
    with pytest.raises(ConfigError) as caught:
        config_of(*phases)
    assert said in str(caught.value)
