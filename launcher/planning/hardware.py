"""What a run is planned for."""

import dataclasses
from dataclasses import dataclass


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
