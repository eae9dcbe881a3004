"""GPUs by name: what their makers' data sheets say of dense matmuls, memory, links and power."""

import dataclasses
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


@dataclass(kw_only=True, slots=True, frozen=True)
class Cluster:
    """What a run is planned for."""

    nodes: int
    gpus_per_node: int
    gpu_memory: int
    """Bytes of one GPU."""
    peak_flops: float
    """FLOP/s of one GPU."""
    mfu: float
    """Fraction of the peak that matmuls reach while a rank computes."""
    intra_bandwidth: float
    """Bytes a second of one GPU to others of its node, one way."""
    inter_bandwidth: float
    """Bytes a second of one node to others, one way, all its adapters together."""
    storage_bandwidth: float
    """Bytes a second that all ranks together write to the file system, or read."""
    gpu_mtbf: float | None
    """Hours between failures of one GPU with its part of the machine."""
    node_mtbf: float | None
    """Hours between failures of one node."""
    restart: float
    """Seconds from a failure to the first update after it, reading the checkpoint apart."""

    def resized(self, num_gpus: int) -> "Cluster":
        """The same machines, as many as so many GPUs need; one with fewer GPUs where it has more."""
        per_node = min(self.gpus_per_node, num_gpus)
        return dataclasses.replace(self, nodes=-(-num_gpus // per_node), gpus_per_node=per_node)

    @property
    def num_gpus(self) -> int:
        """All of them, which is the number of ranks."""
        return self.nodes * self.gpus_per_node

    @property
    def bandwidth(self) -> float:
        """Bytes a second at which a ring over all ranks moves data, limited by the slowest link."""
        return self.intra_bandwidth if self.nodes == 1 else min(self.intra_bandwidth, self.inter_bandwidth)

    @property
    def mtbf(self) -> float:
        """Seconds between failures of any part."""
        rate = self.nodes / self.node_mtbf if self.node_mtbf else 0.0
        rate += self.num_gpus / self.gpu_mtbf if self.gpu_mtbf else 0.0
        return 3600 / rate
