"""What a pass asks of the host: all kernels are replaced by some that do nothing, on tiny tensors of the CPU."""

import math
import time

import torch

from benchmarks.device.budget_calls import KERNELS, count_pass, one_pass, without_kernels
from benchmarks.device.work import Figures


def measure(*, work: str, device: str, preset: str, passes: int) -> Figures:
    """Python calls (exact) and processor time (the least of several passes) of forward and backward.

    A GPU's driver and Triton's own start of a kernel come on top: the host's time of base and big has them.

    Args:
        work, device: not used: this is about the host.
        preset: of the model; only its depth and parts matter, its widths are replaced by tiny ones.
        passes: timed ones.
    """
    torch.set_num_threads(1)
    with without_kernels():
        ways = {kernels: one_pass(preset, kernels) for kernels in KERNELS}
        found = {kernels: {"calls": count_pass(preset, kernels), "seconds": math.inf} for kernels in KERNELS}
        for _ in range(passes + 1):  # in turns: what else runs on the machine is in the way of both
            for kernels, once in ways.items():
                begin = time.process_time()
                once()
                found[kernels]["seconds"] = min(found[kernels]["seconds"], time.process_time() - begin)
    return {"host": found, "preset": preset}
