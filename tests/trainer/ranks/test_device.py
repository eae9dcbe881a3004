"""What a device is, is asked in few places; ranks on devices that cannot work together say so before they meet."""

import io
import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from configs import UserError
from configs.process.environment import read_environment
from tests.forked import Forked
from trainer.ranks import device, distributed
from trainer.ranks.device import RankDevice, check_card, describe_uneven, difference, has_code_for, settle_device

REPO = Path(__file__).parents[3]
MAY_ASK = ("model/kernels/", "trainer/engines/", "trainer/ranks/device.py")


def meet_on(which: str) -> tuple[str | None, str]:
    """As a rank, where rank 1 says that it computes on something else: what is refused, and what is logged."""
    rank, _, _ = read_environment(os.environ)
    gpu = RankDevice(host=f"host{rank}", kind="cuda", cuda="13.0", card="H100", gigabytes=80)
    other = {
        "cpu": RankDevice(host="host1", kind="cpu"),
        "version": replace(gpu, cuda="12.6"),
        "card": replace(gpu, card="A100"),
        "same": gpu,
    }[which]
    vars(distributed)["describe"] = lambda _: other if rank == 1 else gpu
    logged = io.StringIO()
    device.log.addHandler(logging.StreamHandler(logged))
    try:
        distributed.World(timeout_minutes=1).close()
    except UserError as error:
        return str(error), logged.getvalue()
    return None, logged.getvalue()


def test_no_other_place_asks_what_a_device_is() -> None:
    files = [path for package in ("model", "trainer") for path in (REPO / package).rglob("*.py")]
    assert len(files) > 100
    found = {str(path.relative_to(REPO)) for path in files if "device.type" in path.read_text()}
    assert "trainer/ranks/device.py" in found
    assert [name for name in sorted(found) if not name.startswith(MAY_ASK)] == []


@pytest.mark.parametrize(
    ("which", "told"),
    [
        ("cpu", "engine.device: ranks compute on different devices: cpu on host1; CUDA 13.0 on host0; see that"),
        ("version", "engine.device: ranks compute on different devices: CUDA 12.6 on host1; CUDA 13.0 on host0; see"),
    ],
)
def test_ranks_that_cannot_work_together(which: str, told: str, forked: Forked, tmp_path: Path) -> None:
    """One node has lost its GPUs: without a word the others would wait for it in the first collective."""
    for refusal, _ in forked.ranks(2, meet_on, which, meet=False, cwd=tmp_path):
        assert refusal is not None
        assert refusal.startswith(told)


@pytest.mark.parametrize("which", ["card", "same"])
def test_ranks_that_can(which: str, forked: Forked, tmp_path: Path) -> None:
    (refusal, logged), (other, _) = forked.ranks(2, meet_on, which, meet=False, cwd=tmp_path)
    assert refusal is other is None
    told = "different cards, and the slowest sets the pace: A100 with 80 GiB on host1; H100"
    assert (told in logged) == (which == "card")


def test_many_hosts_are_counted() -> None:
    good = [RankDevice(host=f"n{i // 8}", kind="cuda", cuda="13.0", card="H100", gigabytes=80) for i in range(4096)]
    lost = RankDevice(host="n7", kind="cpu")
    problem, warning = difference([*good[:56], lost, *good[57:]])
    assert problem is not None
    assert "different devices: cpu on n7; CUDA 13.0 on n0, n1, n2, n3 and 508 more;" in problem
    assert warning is None
    assert difference(good) == (None, None)


@pytest.mark.parametrize(
    ("lanes", "num_ranks", "told"),
    [
        (8, 4, None),
        (
            10,
            4,
            "2 of them have 2 micro-batches in an update and wait for those with 3, 17% of the GPUs' time; 8 or 12",
        ),
        (5, 4, "3 of them have 1 micro-batch in an update and wait for those with 2, 38% of the GPUs' time; 4 or 8"),
        (3, 4, "1 of them has 0 micro-batches in an update and waits for those with 1, 25% of the GPUs' time; 4"),
    ],
)
def test_ranks_that_wait(lanes: int, num_ranks: int, told: str | None) -> None:
    found = describe_uneven(lanes, num_ranks)
    assert found is None if told is None else found is not None and told in found


@pytest.mark.parametrize(("kind", "seconds"), [("cpu", 90), ("cuda", 150)])
def test_nccl_gives_the_watchdogs_time_to_name_a_rank(kind: str, seconds: int) -> None:
    assert device.time_out(torch.device(kind), 1.5).total_seconds() == seconds


CUDA_12 = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
CUDA_13 = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120")


@pytest.mark.parametrize(
    ("capability", "architectures", "runs"),
    [
        ((7, 0), CUDA_12, True),  # V100
        ((7, 0), CUDA_13, False),
        ((6, 1), CUDA_12, True),
        ((8, 9), CUDA_13, True),  # L4
        ((9, 0), CUDA_13, True),
        ((10, 0), CUDA_12, False),  # B200
        ((13, 2), CUDA_13, True),  # by PTX
        ((10, 3), ("sm_100f",), True),
        ((9, 0), ("sm_90a",), True),
        ((9, 1), ("sm_90a",), False),
        ((9, 0), ("gfx942",), False),
    ],
)
def test_which_cards_a_torch_has_code_for(
    capability: tuple[int, int], architectures: tuple[str, ...], runs: bool
) -> None:
    assert has_code_for(capability, architectures) == runs


@pytest.mark.parametrize(("given", "has_gpu"), [("cuda", False), ("cpu", True)])
def test_deepspeed_that_is_told_to_use_another_device(
    given: str, has_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: has_gpu)
    monkeypatch.setenv("DS_ACCELERATOR", given)
    with pytest.raises(
        UserError, match=f"^DS_ACCELERATOR: '{given}' with engine.device=auto, which is c.* here; leave"
    ):
        settle_device("auto")
    monkeypatch.setenv("DS_ACCELERATOR", "cuda" if has_gpu else "cpu")
    settle_device("auto")


def test_a_card_that_torch_has_no_code_for(monkeypatch: pytest.MonkeyPatch) -> None:
    check_card(torch.device("cpu"))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla V100-SXM2-32GB")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 0))
    for built_for in ((), CUDA_12):
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda found=built_for: list(found))
        check_card(torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: list(CUDA_13))
    with pytest.raises(
        UserError, match=r"^engine\.device: Tesla V100-SXM2-32GB has compute capability 7\.0, and torch .*CUDA=12"
    ):
        check_card(torch.device("cuda", 0))
