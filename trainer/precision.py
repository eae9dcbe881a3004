"""Which number format a device computes in."""

from pathlib import Path
from typing import Literal

import torch

from configs import UserError

Precision = Literal["fp32", "bf16", "fp16"]

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def resolve_precision(asked: str, device: torch.device) -> Precision:
    """The precision to use: `auto` is bf16 where the device multiplies it in hardware, and fp32 elsewhere.

    Raises:
        UserError: fp16 on a CPU, where its products are emulated and its small gradients are lost.
    """
    if asked == "fp16" and device.type == "cpu":
        raise UserError("engine.precision: fp16 cannot run on a CPU; allowed there is fp32, bf16 or auto")
    if asked == "auto":
        has_bf16 = torch.cuda.is_bf16_supported() if device.type == "cuda" else _cpu_multiplies_bf16()
        return "bf16" if has_bf16 else "fp32"
    assert asked in ("fp32", "bf16", "fp16")
    return asked  # type: ignore[return-value]


def _cpu_multiplies_bf16() -> bool:
    """Whether the CPU has AMX or AVX512-BF16; without them bf16 is several times slower than fp32."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="ignore")
    except OSError:
        return False
    return "amx_bf16" in flags or "avx512_bf16" in flags
