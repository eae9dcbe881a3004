"""The cluster that a run is planned for."""

from dataclasses import dataclass

DEFAULT_MFU = 0.2
"""The model FLOPs utilisation (MFU) of a plan for which none is given: a guess between base and big on one H100."""
PUBLISHED_MFU = "LightSeq2 35% on 8 A100, NVIDIA's DeepLearningExamples 33% on one, fairseq 23% on 8"
"""For Transformer big in 16 bits, by the FLOPs of `model.flops` and 312 TFLOP/s of an A100. LightSeq2 has 85,388
target tokens a second and GPU, fairseq beside it 55,700 (github.com/bytedance/lightseq, docs/training/performance.md:
6e6d, eight A100s, 15,000 tokens a batch); DeepLearningExamples has 82,059 (github.com/NVIDIA/DeepLearningExamples,
PyTorch/Translation/Transformer/README.md: DGX A100, one GPU, 10,240 tokens a batch)."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Cluster:
    """The cluster that a run is planned for."""

    nodes: int
    gpus_per_node: int
    gpu_memory: int
    """Bytes of one GPU."""
    peak_flops: float
    """Peak FLOP/s of one GPU."""
    mfu: float
    """Fraction of the peak that a rank reaches while it computes."""
    is_mfu_given: bool
    """Whether the user gave it; if not, it is `DEFAULT_MFU`."""
    intra_bandwidth: float
    """Bytes per second from one GPU to others in its node, one way."""
    inter_bandwidth: float
    """Bytes per second from one node to others, one way, over all its network adapters."""

    @property
    def num_gpus(self) -> int:
        """Number of GPUs in the cluster, which is the number of ranks."""
        return self.nodes * self.gpus_per_node

    @property
    def bandwidth(self) -> float:
        """Bytes per second of a ring over all ranks; the slowest link limits it."""
        return self.intra_bandwidth if self.nodes == 1 else min(self.intra_bandwidth, self.inter_bandwidth)
