"""Data-sheet figures of GPUs: dense matmul throughput, memory and link bandwidth."""

import re
from dataclasses import dataclass


@dataclass(kw_only=True, slots=True, frozen=True)
class Gpu:
    """One GPU model."""

    half_tflops: float
    """Dense bf16 or fp16 with fp32 accumulation, in 10^12 FLOP/s."""
    float_tflops: float
    """fp32 without TF32 (the trainer does not enable TF32), in 10^12 FLOP/s."""
    intra_bandwidth: float
    """Bandwidth of the links within a node, one direction, in bytes a second."""
    memory: int
    """Bytes."""

    def tflops(self, precision: str) -> float:
        """Peak throughput in a precision, in 10^12 FLOP/s."""
        return self.float_tflops if precision == "fp32" else self.half_tflops


_GB = 10**9
GPUS = {
    "a100": Gpu(half_tflops=312, float_tflops=19.5, intra_bandwidth=300e9, memory=80 * _GB),
    "h100": Gpu(half_tflops=989, float_tflops=67, intra_bandwidth=450e9, memory=80 * _GB),
    "h100-pcie": Gpu(half_tflops=756, float_tflops=51, intra_bandwidth=64e9, memory=80 * _GB),
    "gh200": Gpu(half_tflops=989, float_tflops=67, intra_bandwidth=450e9, memory=96 * _GB),
    "h200": Gpu(half_tflops=989, float_tflops=67, intra_bandwidth=450e9, memory=141 * _GB),
    "b200": Gpu(half_tflops=2250, float_tflops=80, intra_bandwidth=900e9, memory=180 * _GB),
    "l40s": Gpu(half_tflops=362, float_tflops=91.6, intra_bandwidth=32e9, memory=48 * _GB),
    "l4": Gpu(half_tflops=121, float_tflops=30.3, intra_bandwidth=32e9, memory=24 * _GB),
    "rtx-4090": Gpu(half_tflops=165, float_tflops=82.6, intra_bandwidth=32e9, memory=24 * _GB),
    "v100": Gpu(half_tflops=125, float_tflops=15.7, intra_bandwidth=150e9, memory=32 * _GB),
}
"""From NVIDIA's data sheets; rtx-4090 from its white paper on the Ada GPU architecture (appendix A).

Peaks are dense: half of the sheet's figure where that is with sparsity (1,513 of h100-pcie, 1,979 of h100 and gh200,
242 of l4). All are SXM modules but l40s, l4 and rtx-4090 (PCIe 4.0 x16), h100-pcie (PCIe 5.0 x16; bridges between two
cards do not count) and gh200, whose links are NVLink's. The A100
also exists with 40 GB, the V100 with 16 GB, the GH200 with 144 GB.
"""


def known_gpu(name: str) -> Gpu | None:
    """The entry for a device name as its driver reports it, such as "NVIDIA H100 80GB HBM3".

    None for unknown GPUs, for MIG instances, and for variants whose peak differs from the table (H100 NVL, V100 PCIe,
    RTX 4090 D and Laptop).
    """
    words = set(re.split(r"[\s-]+", name.lower()))
    gpu = max((key for key in GPUS if words.issuperset(key.split("-"))), key=len, default="")
    others = {"mig", "pcie", "nvl", "d", "laptop"} - set(gpu.split("-")) - ({"pcie"} if gpu == "a100" else set())
    return GPUS[gpu] if gpu and not others & words else None
