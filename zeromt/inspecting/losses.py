"""The loss of each pair of a micro-batch, under the weights of a checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from configs import RunConfig
from data_pipeline.stream.batch import MicroBatch
from trainer.engines.batches import to_device
from trainer.inference.loading import TrainedModel


@dataclass(kw_only=True, slots=True, frozen=True)
class PairLoss:
    """Sums over the target tokens of a pair, in nats."""

    loss: float
    """The training loss, with label smoothing."""
    nll: float
    """Without."""


@torch.inference_mode()
def pair_losses(trained: TrainedModel, config: RunConfig, micro_batches: Sequence[MicroBatch]) -> list[list[PairLoss]]:
    """The losses of all pairs of each micro-batch, without dropout.

    A micro-batch goes through the model as in training; then the configured loss is computed row by row.

    Args:
        trained: the weights.
        config: names the training loss.
        micro_batches: of any update.
    """
    loss, losses = config.loss.build(), []
    for micro_batch in micro_batches:
        batch = to_device(micro_batch, trained.device)
        hidden_BTD = trained.model(batch.source, batch.target_input)
        rows = [
            trained.model.output(hidden_BTD[row : row + 1], batch.target_output[row : row + 1], loss)
            for row in range(micro_batch.num_pairs)
        ]
        sums = torch.tensor([[float(both[0]), float(both[1])] for both in rows], dtype=torch.float64).tolist()
        losses.append([PairLoss(loss=one, nll=two) for one, two in sums])
    return losses
