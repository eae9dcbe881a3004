"""How far a device is used: the FLOPs of a run, the fraction of the peak that they reach (MFU), memory and load.

Memory and load are those of rank 0's machine at a log step. Reading them never synchronises with the device.
"""

import contextlib
import functools
from collections.abc import Mapping

import psutil
import torch

from configs import RunConfig
from configs.components.model import UndeclaredError
from data_pipeline.stream.batch import MicroBatch
from data_pipeline.tokenizer import PAD_ID
from model.flops import BatchShape, model_flops
from model.gpus import known_gpu
from model.parameters import Vocabularies
from trainer.engines.protocol import Engine
from trainer.ranks.device import device_name, kind

TERA = 10**12


class Work:
    """Counts the FLOPs that micro-batches need, by `model.flops.model_flops`.

    Model FLOPs utilisation (MFU) is defined by Chowdhery et al. (2022), appendix B: recomputation (activation
    checkpointing) and padding do not count. The peak is `training.peak_tflops` or, for a known GPU, that of its data
    sheet; without either there is no MFU.
    """

    def __init__(self, config: RunConfig, engine: Engine) -> None:
        source = engine.parameter_shapes()["source_embedding.tokens.weight"][0]
        target = engine.parameter_shapes().get("target_embedding.tokens.weight", (source,))[0]
        of = (config.model, config.loss, Vocabularies(source=source, target=target))
        self._of_pair = functools.cache(
            lambda source, target: model_flops(*of, BatchShape(rows=1, source=source, target=target))
        )
        known = known_gpu(device_name(engine.device)) if kind(engine.device) == "cuda" else None
        self.peak = config.training.peak_tflops or (None if known is None else known.tflops(engine.precision))
        """Peak of one device in 10^12 FLOP/s; None if it is not known."""

    def flops(self, micro_batch: MicroBatch) -> int:
        """FLOPs of the forward and backward pass; 0 if a part of the model does not state its costs."""
        sources, targets = ((side != PAD_ID).sum(axis=1) for side in (micro_batch.source, micro_batch.target_output))
        try:
            return sum(map(self._of_pair, sources.tolist(), targets.tolist()))
        except UndeclaredError:
            return 0

    def figures(self, flops: float, seconds: float, num_ranks: int) -> Mapping[str, float]:
        """`tflops_per_second` of one device, and `mfu` if the peak is known; empty if no FLOPs were counted.

        Args:
            flops: FLOPs of all ranks.
            seconds: time that they took.
            num_ranks: number of ranks, each with one device.
        """
        if not flops:
            return {}
        reached = flops / seconds / num_ranks / TERA
        return {"tflops_per_second": reached} | ({"mfu": reached / self.peak} if self.peak else {})


GIB = 2**30


def machine_figures(device: torch.device) -> dict[str, float]:
    """Memory in GiB and utilisation in percent, of the host and, if there is one, of the GPU.

    `cpu_utilization` is the mean over all cores of the machine since the previous call; 0 at the first.
    """
    figures = {
        "host_memory_gib": psutil.Process().memory_info().rss / GIB,
        "host_memory_free_gib": psutil.virtual_memory().available / GIB,
        "cpu_utilization": psutil.cpu_percent(),
    }
    if kind(device) == "cuda":
        figures["device_memory_allocated_gib"] = torch.cuda.memory_allocated(device) / GIB
        figures["device_memory_peak_gib"] = torch.cuda.max_memory_allocated(device) / GIB
        with contextlib.suppress(Exception):  # no nvidia-ml-py, or a MIG slice: an error here must not end a run
            figures["device_memory_used_gib"] = torch.cuda.device_memory_used(device) / GIB
            figures["device_utilization"] = float(torch.cuda.utilization(device))
    return {key: round(value, 4) for key, value in figures.items()}
