"""Kernels that DeepSpeed adds and waits of the host: what an update may have, and how they are counted."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.device.budget_model import SMALL, count_model
from benchmarks.device.budget_roofline import (
    BYTES_PER_SECOND,
    LAUNCH_SECONDS,
    MATMUL_FLOPS,
    PEAK_FLOPS,
    WAIT_SECONDS,
    estimate,
    padded_shape,
    padding_fraction,
    typical_micro_batch,
)
from configs import preset_model
from tests.conftest import Command
from tests.device.counting import Case, Counts, count_alone, count_as_rank, train_as_rank
from tests.device.meter import Call
from tests.forked import Forked


@dataclass(kw_only=True, frozen=True)
class Budget:
    """The most that an update of two micro-batches may have on each of two ranks: 6 + 6 layers, bf16, clipping."""

    micro_batch: int
    """Kernels that DeepSpeed adds to any."""
    step: int
    waits: int
    """Between two updates, all of the loop included."""


# Wanted were 260 a micro-batch and a step of 60 at stages 0 to 2, 600 and 300 at 3, one wait, and 4 with offload.
BUDGETS: dict[Case, Budget] = {
    (0, False): Budget(micro_batch=6, step=12, waits=1),
    (1, False): Budget(micro_batch=8, step=18, waits=1),
    (2, False): Budget(micro_batch=14, step=15, waits=1),
    (3, False): Budget(micro_batch=371, step=270, waits=1),
    (2, True): Budget(micro_batch=266, step=11, waits=1),
}
MODEL = {"plain": (258, 492), "cuda": (132, 305)}
"""Kernels of a micro-batch of the model alone, at most, forward and backward."""


@pytest.fixture(scope="module")
def counted(forked: Forked, tmp_path_factory: pytest.TempPathFactory) -> list[Counts]:
    """By rank and stage, of two real ranks that train on the pseudo device over gloo."""
    return forked.ranks(
        2, count_as_rank, list(BUDGETS), cwd=tmp_path_factory.mktemp("counted"), meet=False, seconds=290
    )


@pytest.mark.parametrize("case", BUDGETS, ids=lambda case: f"ZeRO-{case[0]}{' offload' if case[1] else ''}")
def test_an_update_keeps_within_its_budget(counted: list[Counts], case: Case) -> None:
    for rank, by_case in enumerate(counted):
        found, budget = by_case[case], BUDGETS[case]
        told = f"rank {rank}: {json.dumps(found, indent=1)}"
        assert max(found["added"], found["added_later"]) <= budget.micro_batch, told
        assert found["step"] <= budget.step, told
        assert found["waits"] <= budget.waits, told
        assert case[1] or not found["lines"]["uploads"], told


def test_one_rank_waits_no_more_than_two(forked: Forked, tmp_path: Path) -> None:
    """At stage 3 DeepSpeed has other code for what need not be gathered."""
    [found] = forked.ranks(1, count_as_rank, [(3, False)], cwd=tmp_path, meet=False)
    assert found[3, False]["waits"] <= BUDGETS[3, False].waits, found[3, False]["lines"]["waits"]


def test_a_rank_alone_and_without_numbers_has_the_counts_of_real_ones(
    counted: list[Counts], forked: Forked, tmp_path: Path
) -> None:
    """So `benchmarks.device.budget` may count one rank of many, at any size."""
    [alone] = forked.ranks(1, count_alone, 1, 2, [(2, False), (3, False)], cwd=tmp_path, meet=False)
    for case, found in alone.items():
        assert found == counted[1][case]


def test_updates_are_those_of_the_cpu(forked: Forked, tmp_path: Path) -> None:
    """Losses and norms of two ranks at every stage: what is counted is the real thing."""
    device, cpu = (
        forked.ranks(2, train_as_rank, on_device, list(range(4)), cwd=tmp_path, meet=False)
        for on_device in (True, False)
    )
    for mine, theirs in zip(device, cpu, strict=True):
        for stage, (found, expected) in enumerate(zip(mine, theirs, strict=True)):
            assert found == pytest.approx(expected, rel=1e-5), f"ZeRO-{stage}"


def test_the_command(tmp_path: Path) -> None:
    """The JSON has the fields that were agreed on, and every line says that it is an estimate."""
    out = tmp_path / "budget.json"
    small = ["--layers", "1", "--stages", "0", "--tokens", "512", "--vocab", "64", "--json", str(out)]
    command = [sys.executable, "-m", "benchmarks.device.budget", "--preset", "vaswani_base", *small]
    done = Command(command, cwd=tmp_path).finish()
    assert done.code == 0, done.err
    for line in filter(None, done.out.splitlines()):
        assert "estimated" in line
    found = json.loads(out.read_text())
    assert found["kernels"].keys() == {"forward", "backward"}
    assert found["stages"].keys() == {"0"}
    assert {"added", "added_later", "step", "waits"} <= found["stages"]["0"].keys()
    assert found["mfu_estimated"].keys() == {"512"}
    assert 0 < found["mfu_estimated"]["512"] < 0.65


@pytest.mark.parametrize("kernels", MODEL)
def test_kernels_of_the_model(kernels: str) -> None:
    """Attention is one forward and three backward."""
    found = count_model(preset_model("vaswani_base", {}), shape=SMALL, vocab=37_000, kernels=kernels)
    for meter, most in zip(found, MODEL[kernels], strict=True):
        assert meter.num_kernels <= most, meter.by_operator()
        assert not meter.waits


def a_call(*, launches: int = 1, num_bytes: int = 0, flops: int = 0) -> Call:
    return Call(operator="mm", line="", launches=launches, bytes=num_bytes, flops=flops)


class TestRoofline:
    def test_the_host_or_the_device_and_the_waits(self) -> None:
        host = [a_call(launches=3)] * 100
        found = estimate(host, num_waits=2, flops=PEAK_FLOPS / 1e3)
        assert found.limit == "host"
        assert found.seconds == pytest.approx(300 * LAUNCH_SECONDS + 2 * WAIT_SECONDS)
        assert found.mfu == pytest.approx(1e-3 / found.seconds)
        device = [*host, a_call(num_bytes=int(BYTES_PER_SECOND)), a_call(flops=int(MATMUL_FLOPS))]
        found = estimate(device, num_waits=0, flops=PEAK_FLOPS)
        assert found.limit == "device"
        assert found.seconds == pytest.approx(2.0)
        assert found.mfu == pytest.approx(0.5)

    def test_an_operator_takes_the_longer_of_both(self) -> None:
        both = estimate([a_call(num_bytes=int(BYTES_PER_SECOND), flops=int(3 * MATMUL_FLOPS))], num_waits=0, flops=1)
        assert both.device == pytest.approx(3.0)

    @pytest.mark.parametrize("tokens", [512, 3_200, 16_384])
    def test_the_typical_micro_batch_fits_its_budget(self, tokens: int) -> None:
        lengths = typical_micro_batch(tokens)
        rows, source, target = padded_shape(lengths)
        assert rows * max(source, target) <= tokens
        assert rows * max(source, target) > 0.8 * tokens
        assert (lengths <= [source, target]).all()
        assert padding_fraction(lengths) == pytest.approx(1 - lengths.sum() / (rows * (source + target)))
