"""GPUs by name: what their makers' data sheets say of dense matmuls, memory, links and power."""

import re
from dataclasses import dataclass


@dataclass(kw_only=True, slots=True, frozen=True)
class Gpu:
    """One device."""

    half_tflops: float
    """bf16 or fp16 with fp32 sums, dense, in 10^12 FLOP/s."""
    float_tflops: float
    """fp32 without TF32, which the trainer does not switch on."""
    intra_bandwidth: float
    """Of its links within a node, one way, in bytes a second."""
    memory: int
    """Bytes."""
    watts: float
    """Thermal design power."""

    def tflops(self, precision: str) -> float:
        """The peak of a precision, in 10^12 FLOP/s."""
        return self.float_tflops if precision == "fp32" else self.half_tflops


_GB = 10**9
GPUS = {
    "a100": Gpu(half_tflops=312, float_tflops=19.5, intra_bandwidth=300e9, memory=80 * _GB, watts=400),
    "h100": Gpu(half_tflops=989, float_tflops=67, intra_bandwidth=450e9, memory=80 * _GB, watts=700),
    "h200": Gpu(half_tflops=989, float_tflops=67, intra_bandwidth=450e9, memory=141 * _GB, watts=700),
    "b200": Gpu(half_tflops=2250, float_tflops=80, intra_bandwidth=900e9, memory=180 * _GB, watts=1000),
    "l40s": Gpu(half_tflops=362, float_tflops=91.6, intra_bandwidth=32e9, memory=48 * _GB, watts=350),
    "l4": Gpu(half_tflops=121, float_tflops=30.3, intra_bandwidth=32e9, memory=24 * _GB, watts=72),
    "v100": Gpu(half_tflops=125, float_tflops=15.7, intra_bandwidth=150e9, memory=32 * _GB, watts=300),
}
"""NVIDIA's data sheets: SXM modules but for l40s and l4, which have PCIe 4.0 x16 (L4: x16 too). The A100 and
the V100 exist with 40 and 16 GB too."""


def known_gpu(name: str) -> Gpu | None:
    """What is known of a device by the name that its driver gives, such as "NVIDIA H100 80GB HBM3".

    None of others, of a part of a GPU (MIG), and of modules with another peak than the table's: H100 with PCIe or NVL,
    and V100 with PCIe.
    """
    words = re.split(r"[\s-]+", name.lower())
    found = [GPUS[word] for word in words if word in GPUS]
    others = {"mig"} if "a100" in words else {"mig", "pcie", "nvl"}
    return found[0] if found and not others & set(words) else None
