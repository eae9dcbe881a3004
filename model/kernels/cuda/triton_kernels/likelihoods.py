"""`zeromt::likelihoods`."""

from torch import Tensor

from model.kernels.cuda.triton_kernels.cross_entropy import cross_entropy


def likelihoods(
    logits_RP: Tensor,
    targets_R: Tensor,
    losses_2R: Tensor,
    vocab: int,
    padding_id: int,
    smoothing: float,
    scales_R: Tensor | None = None,
) -> None:
    """The operator `likelihoods` of `model.kernels.cuda.loss`."""
    cross_entropy(logits_RP, targets_R, losses_2R, vocab, padding_id, smoothing, 1.0, scales_R, with_grad=False)
