"""Which number format a device computes in."""

from typing import Literal

import torch

from configs import UserError
from model.kernels import gains_by_bf16
from trainer.ranks.device import is_host
from trainer.ranks.distributed import World

Precision = Literal["fp32", "bf16", "fp16"]

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def resolve_precision(asked: str, device: torch.device, *, option: str = "engine.precision") -> Precision:
    """The precision to use: `auto` is bf16 where the device multiplies it faster than fp32, and fp32 elsewhere.

    Args:
        asked: auto, fp32, bf16 or fp16.
        device: that computes.
        option: what errors call it.

    Raises:
        UserError: fp16 on a CPU, where its products are emulated and its small gradients are lost.
    """
    if asked == "fp16" and is_host(device):
        raise UserError(f"{option}: fp16 cannot run on a CPU; allowed there is fp32, bf16 or auto")
    if asked == "auto":
        return "bf16" if gains_by_bf16(device) else "fp32"
    assert asked in ("fp32", "bf16", "fp16")
    return asked  # type: ignore[return-value]


def translating_precision(asked: str | None, trained_with: str, device: torch.device) -> Precision:
    """The precision that a trained model translates in: unless one is asked for, fp32 on a CPU and the run's on a GPU.

    In half precision what else stands in a line's batch changes its rounding, and so translations and scores: on a CPU
    that is not had without being asked for. On a GPU it is what the run was trained and evaluated in.

    Args:
        asked: `--precision`, None where it is not given.
        trained_with: the run's `engine.precision`.
        device: that translates.

    Raises:
        UserError: fp16 is asked for on a CPU.
    """
    if asked is not None:
        return resolve_precision(asked, device, option="--precision")
    return "fp32" if is_host(device) else resolve_precision(trained_with, device)


def agreed_precision(asked: str, world: World) -> Precision:
    """As `resolve_precision`, the same on all ranks: `auto` is fp32 where it is on one of them.

    Raises:
        UserError: as there.
    """
    found = resolve_precision(asked, world.device)
    return "fp32" if asked == "auto" and "fp32" in world.gather(found) else found
