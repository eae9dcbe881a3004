"""Which number format a device computes in."""

from typing import Literal

import torch

from configs import UserError
from model.kernels import gains_by_bf16
from trainer.distributed import World

Precision = Literal["fp32", "bf16", "fp16"]

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def resolve_precision(asked: str, device: torch.device) -> Precision:
    """The precision to use: `auto` is bf16 where the device multiplies it faster than fp32, and fp32 elsewhere.

    Raises:
        UserError: fp16 on a CPU, where its products are emulated and its small gradients are lost.
    """
    if asked == "fp16" and device.type == "cpu":
        raise UserError("engine.precision: fp16 cannot run on a CPU; allowed there is fp32, bf16 or auto")
    if asked == "auto":
        return "bf16" if gains_by_bf16(device) else "fp32"
    assert asked in ("fp32", "bf16", "fp16")
    return asked  # type: ignore[return-value]


def agreed_precision(asked: str, world: World) -> Precision:
    """As `resolve_precision`, the same on all ranks: `auto` is fp32 where it is on one of them.

    Raises:
        UserError: as there.
    """
    found = resolve_precision(asked, world.device)
    return "fp32" if asked == "auto" and "fp32" in world.gather(found) else found
