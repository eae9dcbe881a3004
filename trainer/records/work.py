"""The FLOPs of a run, and the fraction of the device's peak that they reach (MFU)."""

from collections.abc import Mapping

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
        self._of = (config.model, config.loss, Vocabularies(source=source, target=target))
        self._by_lengths: dict[tuple[int, int], int] = {}
        known = known_gpu(device_name(engine.device)) if kind(engine.device) == "cuda" else None
        self.peak = config.training.peak_tflops or (None if known is None else known.tflops(engine.precision))
        """Peak of one device in 10^12 FLOP/s; None if it is not known."""

    def flops(self, micro_batch: MicroBatch) -> int:
        """FLOPs of the forward and backward pass; 0 if a part of the model does not state its costs."""
        sources, targets = ((side != PAD_ID).sum(axis=1) for side in (micro_batch.source, micro_batch.target_output))
        return sum(map(self._of_pair, zip(sources.tolist(), targets.tolist(), strict=True)))

    def _of_pair(self, lengths: tuple[int, int]) -> int:
        if (flops := self._by_lengths.get(lengths)) is None:
            try:
                flops = model_flops(*self._of, BatchShape(rows=1, source=lengths[0], target=lengths[1]))
            except UndeclaredError:
                flops = 0
            self._by_lengths[lengths] = flops
        return flops

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
