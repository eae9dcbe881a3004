"""`zeromt sweep`: which runs it trains, under which names, and that kills lose none of them."""

import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from configs import UserError
from tests.conftest import Command, read_metrics, zeromt
from tests.small import small_runs
from zeromt.sweeping.grid import runs_of

RATES, DROPOUTS = "optimizer.lr=[1e-4,0.01]", "model.dropout=[0.1,0.3]"
QUICK = ["training.max_updates=4", "training.tensorboard=false", "training.memory_probe=false", "training.log_every=1"]
QUICK += ["checkpoint.every_updates=2", "evaluation.every_updates=2", "evaluation.max_pairs=2"]
NAMES = [f"small_lr-{rate}_dropout-{dropout}" for rate in ("1e-4", "0.01") for dropout in ("0.1", "0.3")]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = Path(shutil.copytree(small_runs(), tmp_path / "place"))
    monkeypatch.chdir(place)
    return place


class TestGrid:
    def test_a_product_and_its_names(self, place: Path) -> None:
        runs = runs_of("small.yaml", [RATES, "training.max_updates=3", DROPOUTS])
        assert [one.name for one in runs] == NAMES
        found = [(one.config.optimizer.lr, one.config.model.dropout, one.config.training.max_updates) for one in runs]
        assert found == [(1e-4, 0.1, 3), (1e-4, 0.3, 3), (0.01, 0.1, 3), (0.01, 0.3, 3)]
        assert [one.config.name for one in runs] == NAMES

    def test_a_list_and_a_product_with_it(self, place: Path) -> None:
        listed = ["{optimizer.lr: 1e-3, model.dropout: 0}", "{model.dropout: 0.2}"]
        assert [one.name for one in runs_of("small.yaml", listed)] == ["small_lr-1e-3_dropout-0", "small_dropout-0.2"]
        found = runs_of("small.yaml", [*listed, "seed=[1,2]", "name=s"])
        assert [one.name for one in found] == [
            "s_lr-1e-3_dropout-0_seed-1", "s_lr-1e-3_dropout-0_seed-2", "s_dropout-0.2_seed-1", "s_dropout-0.2_seed-2",
        ]  # fmt: skip

    def test_sections_lists_and_keys_of_the_same_end(self, place: Path) -> None:
        words = ["schedule=[{kind: wsd, warmup_updates: 1},{kind: constant}]", "model.encoder_layers=[1,2]"]
        names = [one.name for one in runs_of("small.yaml", words)]
        assert names[0] == "small_schedule-kind-wsd-warmup_updates-1_encoder_layers-1"
        assert len(set(names)) == 4
        many = runs_of("small.yaml", ["evaluation.metrics=[[bleu],[bleu,chrf]]"])
        assert [len(one.config.evaluation.metrics) for one in many] == [1, 2]
        alike = runs_of("small.yaml", ["training.early_stopping=[null]", "stream.cache=[a,b]", "engine.kernels=[auto]"])
        assert alike[0].name == "small_early_stopping-null_cache-a_kernels-auto"

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["optimizer.lr=1"], "SETTING: none has several values; give one, such as 'optimizer.lr="),
            (["optimizer.lr=[]"], "optimizer.lr: no value in 'optimizer.lr=[]'"),
            (["optimizer.lr=[1e-4"], "SETTING: 'optimizer.lr=[1e-4' is no YAML: it has no ]; in a shell, quote"),
            (["{}"], "SETTING: '{}'; give a combination, such as "),
            (["prepare.max_pieces=[9,10]"], "prepare.max_pieces: the same in all runs of a sweep"),
            (["seed=[1,1]"], "SETTING: {'seed': 1} and {'seed': 1} would both be small_seed-1; leave one out"),
            (["optimizer.lr=[1e-4,-1]"], "small_lr--1: optimizer.lr: "),
            (["optimizer.rl=[1,2]"], "small_rl-1: optimizer.rl: "),
            ([f"seed=[{','.join(map(str, range(101)))}]", f"model.dropout=[{','.join('0' * 100)}]"], "combinations; "),
        ],
    )
    def test_refused(self, place: Path, words: list[str], said: str) -> None:
        with pytest.raises(UserError, match=re.escape(said)):
            runs_of("small.yaml", words)


def test_parts_and_their_table(place: Path) -> None:
    """A part trains its own runs; one that fails does not stop the others; the table has those that have weights."""
    words = ["sweep", "small.yaml", "optimizer.lr=[0.01,1e30,0.02]", *QUICK, "training.max_skipped_in_a_row=1"]
    shown = Command(zeromt(*words, "--part", "2/2", "--dry-run"), cwd=place).finish()
    assert (shown.code, shown.out.count("\n"), "small_lr-1e30: " in shown.out) == (0, 1, True)
    done = Command(zeromt(*words, "--nproc", "1", "--part", "2/2"), cwd=place).finish()
    assert done.code == 1
    assert "error: 1 of 1 runs failed: small_lr-1e30; the same command tries them again" in done.err
    done = Command(zeromt(*words, "--nproc", "1", "--part", "1/2"), cwd=place).finish()
    assert done.code == 0, done.err
    done = Command(zeromt(*words, "--merge"), cwd=place).finish()
    assert done.code == 0, done.err
    assert "small_lr-1e30 has no checkpoint, and is not compared" in done.err
    assert all(name in done.out for name in ("small_lr-0.01", "small_lr-0.02", "optimizer.lr"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_twice(place: Path) -> None:
    """By SIGTERM, which is passed on, and by SIGKILL; then the same command finishes what is left."""
    words = zeromt("sweep", "small.yaml", RATES, DROPOUTS, *QUICK, "training.max_updates=30", "--nproc", "1")
    for kill, name in ((signal.SIGTERM, NAMES[0]), (signal.SIGKILL, NAMES[2])):
        started = subprocess.Popen(words, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not (place / "runs" / name / "metrics.jsonl").exists():
            assert started.poll() is None
            time.sleep(0.1)
        time.sleep(1.0)
        started.send_signal(kill)
        assert started.wait() == (75 if kill == signal.SIGTERM else -signal.SIGKILL)
    done = Command(words, cwd=place).finish()
    assert done.code == 0, done.err
    for name in NAMES:
        assert [line["step"] for line in read_metrics(place / "runs" / name)] == list(range(1, 31))
        assert name in done.out
