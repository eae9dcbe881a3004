"""Contrastive preference optimization as a loss: its fields and costs. The equations: `model.cpo`."""

from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from configs.components import component
from configs.components.model import FLOAT, Loss, LossBytes, Storage
from configs.fields import NonNegativeFloat, PositiveFloat

if TYPE_CHECKING:
    from model.cpo import CPO

CHUNK_LOGITS = 1 << 26
"""As `model.loss.CHUNK_ELEMENTS`."""


@component("loss", "cpo")
class CPOLoss(Loss):
    """Contrastive preference optimization (Xu et al., 2024): datasets with a chosen and a rejected translation of each
    source (`prepare.train.rejected_field`), to train a model on that is there (`--from RUN`). Without label smoothing.
    """

    needs_triples: ClassVar[bool] = True
    figures: ClassVar[tuple[str, ...]] = ("margin", "chosen_wins")

    beta: PositiveFloat = 0.1
    """Factor of the margin, log p(chosen) - log p(rejected), in -log sigmoid(beta * margin), the mean over triples."""
    nll_weight: NonNegativeFloat = 1.0
    """Weight of the negative log-likelihood of the chosen translations, the mean over their tokens, beside it."""

    @override
    def build(self) -> "CPO":
        from model.cpo import CPO

        return CPO(self.beta, self.nll_weight)

    @override
    def activation_bytes(
        self, width: int, tokens: int, vocabulary: int, *, has_bias: bool, storage: Storage
    ) -> LossBytes:
        """Memory of `model.cpo`, which computes logits in chunks, forward and again backward.

        Hidden states are kept. Working memory: a chunk of logits with its probabilities in fp32, and backward the
        gradient of the output matrix, in fp32 and once in the weights' precision.
        """
        element, matrix = storage.element, vocabulary * width
        logits = min(tokens * vocabulary, CHUNK_LOGITS) * (element + 2 * FLOAT)
        half = 0 if element == FLOAT else element
        return LossBytes(kept=tokens * (width * element + FLOAT), working=logits + matrix * (FLOAT + half))

    @override
    def signature(self) -> str:
        return "label smoothing 0"  # of held-out pairs it is their negative log-likelihood
