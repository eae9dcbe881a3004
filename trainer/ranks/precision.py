"""The number format in which a device computes, and by which kernels."""

import functools
import logging
from typing import Literal

import torch

from configs import UserError
from model.kernels import bf16_is_faster, has_kernels
from model.kernels.check import problem
from trainer.ranks.device import is_host
from trainer.ranks.distributed import World

log = logging.getLogger(__name__)

Precision = Literal["fp32", "bf16", "fp16"]
Kernels = Literal["auto", "plain", "cuda"]

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def resolve_precision(asked: str, device: torch.device, *, option: str = "engine.precision") -> Precision:
    """The precision to use: `auto` is bf16 if the device's matmuls are faster in it than in fp32, else fp32.

    Args:
        asked: auto, fp32, bf16 or fp16.
        device: that computes.
        option: its name in errors.

    Raises:
        UserError: another name, or fp16 on a CPU, where its matmuls are emulated and small gradients underflow.
    """
    if asked not in ("auto", *DTYPES):
        raise UserError(f"{option}: {asked!r}; allowed is auto, {', '.join(DTYPES)}")
    if asked == "fp16" and is_host(device):
        raise UserError(f"{option}: fp16 cannot run on a CPU; allowed there is fp32, bf16 or auto")
    if asked == "auto":
        return "bf16" if bf16_is_faster(device) else "fp32"
    return asked  # type: ignore[return-value]


def translating_precision(asked: str | None, trained_with: str, device: torch.device) -> Precision:
    """The precision in which a trained model translates; default: fp32 on a CPU, the run's on a GPU.

    In half precision, rounding and so translations and scores depend on the other lines of a batch; on a CPU this
    happens only if the user asks for it. On a GPU the default is what the run was trained and evaluated in.

    Args:
        asked: `--precision`, None if it is not given.
        trained_with: the run's `engine.precision`.
        device: that translates.

    Raises:
        UserError: fp16 was asked for on a CPU.
    """
    if asked is not None:
        return resolve_precision(asked, device, option="--precision")
    return "fp32" if is_host(device) else resolve_precision(trained_with, device)


def agreed_precision(asked: str, world: World) -> Precision:
    """Like `resolve_precision`, but the same on all ranks: `auto` is fp32 if it is on any rank.

    Raises:
        UserError: see there.
    """
    own = resolve_precision(asked, world.device)
    return "fp32" if asked == "auto" and "fp32" in world.gather(own) else own


def agreed_kernels(asked: Kernels, precision: Precision, world: World) -> Kernels:
    """Like `working_kernels`, but the same on all ranks: plain if those for GPUs fail on any rank."""
    own = working_kernels(asked, world.device, DTYPES[precision])
    return "plain" if "plain" in world.gather(own) else own


@functools.cache
def working_kernels(asked: Kernels, device: torch.device, dtype: torch.dtype) -> Kernels:
    """What `engine.kernels` says; plain in the place of auto, with a warning, where those for GPUs fail a check.

    Args:
        asked: auto, plain or cuda.
        device: that computes.
        dtype: of the weights.
    """
    if asked != "auto" or is_host(device) or not has_kernels(device) or not (why := problem(device, dtype)):
        return asked
    log.warning("engine.kernels: plain, which is slower: those for GPUs failed their check on this card (%s)", why)
    return "plain"
