"""The matmuls of a run, and which fraction of a device's peak they reach (MFU)."""

from collections.abc import Mapping

from configs import RunConfig
from configs.components.model import UndeclaredError
from data_pipeline.stream.batch import MicroBatch
from data_pipeline.tokenizer import PAD_ID
from model.costs.flops import BatchShape, model_flops
from model.costs.gpus import known_gpu
from model.parameters import Vocabularies
from trainer.engines.protocol import Engine
from trainer.ranks.device import device_name, kind

TERA = 10**12


class Work:
    """FLOPs that the tokens of micro-batches need, as `model.costs.flops.model_flops` has them.

    Model FLOPs utilisation is that of Chowdhery et al. (2022), appendix B: what is computed twice (activation
    checkpointing) counts once, and padding, which no token needs, not at all. The peak is `training.peak_tflops`, else
    the data sheet's of a GPU whose name is known; without either there is no MFU.
    """

    def __init__(self, config: RunConfig, engine: Engine) -> None:
        source = engine.parameter_shapes()["source_embedding.tokens.weight"][0]
        target = engine.parameter_shapes().get("target_embedding.tokens.weight", (source,))[0]
        self._of = (config.model, config.loss, Vocabularies(source=source, target=target))
        self._by_lengths: dict[tuple[int, int], int] = {}
        known = known_gpu(device_name(engine.device)) if kind(engine.device) == "cuda" else None
        self.peak = config.training.peak_tflops or (None if known is None else known.tflops(engine.precision))
        """Of one device, in 10^12 FLOP/s."""

    def flops(self, micro_batch: MicroBatch) -> int:
        """Forward and backward; 0 where a part of the model does not say."""
        sources, targets = ((side != PAD_ID).sum(axis=1) for side in (micro_batch.source, micro_batch.target_output))
        return sum(map(self._of_pair, zip(sources.tolist(), targets.tolist(), strict=True)))

    def _of_pair(self, lengths: tuple[int, int]) -> int:
        if (found := self._by_lengths.get(lengths)) is None:
            try:
                found = model_flops(*self._of, BatchShape(rows=1, source=lengths[0], target=lengths[1]))
            except UndeclaredError:
                found = 0
            self._by_lengths[lengths] = found
        return found

    def figures(self, flops: float, seconds: float, num_ranks: int) -> Mapping[str, float]:
        """`tflops_per_second` of one device, and its `mfu` where the peak is known; nothing where no FLOPs are.

        Args:
            flops: of all ranks.
            seconds: in which they were made.
            num_ranks: with a device each.
        """
        if not flops:
            return {}
        reached = flops / seconds / num_ranks / TERA
        return {"tflops_per_second": reached} | ({"mfu": reached / self.peak} if self.peak else {})
