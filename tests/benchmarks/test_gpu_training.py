"""The GPU benchmark goes from end to end: on a CPU with a tiny model, on a GPU with a small one."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.common.child import ROOT
from benchmarks.device.programs import attempt
from benchmarks.device.report import worst_difference
from benchmarks.device.work import flops_per_target_token
from configs import UserError, model_section
from data_pipeline.tokenizer import BOS_ID, EOS_ID, PAD_ID
from model import Objective, SpecialIds, build_transformer
from model.kernels import use_kernels
from model.loss import CrossEntropy
from tests.flops import flop_counter

TINY = [
    "model.d_model=32",
    "model.attention.num_heads=2",
    "model.feed_forward.d_ff=64",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
]
RATES = {"tokens_per_second", "seconds_per_update", "padding", "mfu", "peak_allocated", "peak_reserved"}


def run(folder: Path, *arguments: str, timeout: float) -> dict[str, Any]:
    """The figures of wmt_base, one round, with those of the card."""
    file = folder / "figures.json"
    common = ["--runs", "wmt_base", "--rounds", "1", "--json", str(file), "--work", str(folder)]
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.device.training", *common, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    result = json.loads(file.read_text())
    figures = result["details"]
    rows = {row["program"]: row for row in result["rows"]}
    assert "zeromt" not in rows or rows["zeromt"]["planned_gib"] > 0
    assert all(row["run"] == "wmt_base" and row["mfu"] > 0 for row in rows.values())
    assert figures["card"]["best"] == max(figures["card"]["rates"].values()) > 0
    assert figures["pairs"]["mean_lengths"] == pytest.approx([28, 28], rel=0.1)
    found: dict[str, Any] = figures["runs"]["wmt_base"] | {"card": figures["card"]}
    for program, measured in found["rounds"][0].items():
        assert measured.keys() >= RATES, program
        assert 0 < measured["padding"] < 0.4
        of_the_card = measured["tokens_per_second"] * found["flops_per_target_token"] / figures["card"]["best"]
        assert measured["mfu"] == pytest.approx(of_the_card)
    return found


def test_every_part_on_a_cpu(tmp_path: Path) -> None:
    profile = tmp_path / "profile.txt"
    sizes = ["--tokens", "256", "--vocab", "200", "--pairs", "500", "--updates", "6", "--warm-up", "2"]
    parts = ["--programs", "zeromt", "plain loop", "--stages", "0", "2-offload", "--profile", str(profile)]
    found = run(tmp_path, "--device", "cpu", *sizes, *parts, "--set", *TINY, timeout=280)
    assert found["rounds"][0].keys() == {"zeromt", "plain loop"}
    assert len(found["rounds"][0]["zeromt"]["losses"]) == 6
    assert len(found["ratios"]["plain loop"]) == 1
    assert found["planned_peak"] > 0
    assert (found["mfu_target"], found["plan_off"]) == (0.35, None)
    assert found["stages"].keys() == {"ZeRO-0", "ZeRO-2 + offload"}
    for stage in found["stages"].values():
        assert stage.keys() >= RATES | {"planned_peak", "worst_loss"}
        assert stage["agrees"]
    assert found["profile"]["operations"][0]["share"] > 0
    assert "aten::mm" in profile.read_text()
    assert {p.name for p in tmp_path.iterdir()} == {"figures.json", "profile.txt"}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_ranks_and_transformers_on_a_cpu(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    sizes = ["--tokens", "256", "--vocab", "200", "--pairs", "1000", "--updates", "22", "--warm-up", "2"]
    parts = ["--gpus", "2", "--programs", "transformers", "--stages", "0", "1", "3"]
    found = run(tmp_path, "--device", "cpu", *sizes, *parts, "--set", *TINY, timeout=500)
    assert found["stages"].keys() == {"ZeRO-0", "ZeRO-1", "ZeRO-3"}
    assert all(stage["agrees"] and len(stage["losses"]) == 22 for stage in found["stages"].values())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.timeout(1200)
def test_a_gpu(tmp_path: Path) -> None:
    profile = tmp_path / "profile.txt"
    sizes = ["--tokens", "4096", "--pairs", "20000", "--updates", "22", "--warm-up", "10"]
    found = run(tmp_path, *sizes, "--profile", str(profile), timeout=1100)
    for measured in found["rounds"][0].values():
        assert 0 < measured["mfu"] < 1
        assert measured["peak_reserved"] >= measured["peak_allocated"] > 0
    assert found["plan_off"] == pytest.approx(0, abs=0.15)
    for name, stage in found["stages"].items():
        assert stage["agrees"], name
        assert stage["planned_peak"] == pytest.approx(stage["peak_allocated"], rel=0.15), name
    assert 0 < found["profile"]["device_busy"] <= 1.05


def test_flops_are_those_that_torch_counts() -> None:
    section = model_section(d_model=16, num_heads=2, d_ff=32, encoder_layers=2, decoder_layers=1, max_positions=32)
    special = SpecialIds(pad=PAD_ID, bos=BOS_ID, eos=EOS_ID)
    model = build_transformer(section, source_vocab_size=50, target_vocab_size=50, special=special, seed=1)
    use_kernels(model, torch.device("cpu"))
    objective = Objective(model, CrossEntropy(0.1))
    lengths = np.array([[7, 5], [3, 9], [7, 5]])
    with flop_counter() as counter:
        for source, target in lengths.tolist():
            sides = [torch.full((1, length), 5) for length in (source, target, target)]
            objective(*sides).loss_sum.backward()
    recomputing = dataclasses.replace(section, activation_checkpointing=True)
    for measured in (section, recomputing):
        assert flops_per_target_token(measured, 50, lengths) == counter.get_total_flops() / (5 + 9 + 5)


def test_losses_that_are_not_numbers_do_not_agree() -> None:
    assert worst_difference([2.0, 3.03], [2.0, 3.0]) == pytest.approx(0.01)
    assert not worst_difference([2.0, float("nan")], [2.0, 3.0]) <= 1


def test_what_fails_is_named_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    def run_out() -> dict[str, Any]:
        raise UserError("out of memory")

    assert attempt("another program", run_out) is None
    assert capsys.readouterr().out == "another program: FAILED, skipped: out of memory\n"
    assert attempt("a program", lambda: {"padding": 0.1}) == {"padding": 0.1}
