"""Contrastive preference optimization (CPO; Xu et al., 2024, arXiv 2401.08417), without a reference model.

Of a source x, a chosen translation y and a rejected one z the paper's loss is

    -log sigmoid(beta * (log p(y | x) - log p(z | x))) - nll_weight * log p(y | x)

in expectation over the triples, with nll_weight 1, so its second term is a whole sentence's. Its authors' code
(github.com/fe1ixxu/ALMA, utils/cpo_trainer.py) and TRL's CPOTrainer divide that one otherwise: in the first term a
log-probability is the sum over a translation's tokens, EOS among them, and the mean is over the triples; the second is
the mean over the tokens of the chosen translations, there of a micro-batch. It is as in the code here, but for the
means, which are over the whole update: with N triples and M chosen tokens,

    1 / N * sum of -log sigmoid(beta * margin) + nll_weight / M * sum of the chosen tokens' negative log-likelihoods

No label smoothing. Shapes: N tokens, R rows, B triples, T tokens of a padded row, V pieces, D width.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from model.loss import PLAIN_STEPS


@dataclass(frozen=True, slots=True)
class CPO:
    """The loss of triples; of rows that are none, as of held-out pairs, it is their negative log-likelihood."""

    beta: float
    nll_weight: float
    rows: int | Tensor | None = None
    """Where rows 2 i and 2 i + 1 are a triple: T, of rows of T tokens each, or the bounds of packed rows
    (`model.layout.Side.bounds`). None: rows are no triples."""
    tokens_per_triple: float = 1.0
    """M / N, over all micro-batches and ranks of the update."""

    def of_triples(self, rows: int | Tensor, tokens_per_triple: float) -> "CPO":
        """The loss of a micro-batch of triples."""
        return replace(self, rows=rows, tokens_per_triple=tokens_per_triple)

    def __call__(
        self,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        *,
        padding_id: int,
        scales_N: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Of rows that are no triples as `model.loss.Loss` says.

        Of triples the loss times M, differentiable; the chosen translations' negative log-likelihood in nats; and (2,)
        sums over the triples: the margins log p(y | x) - log p(z | x), and how many of them are above 0.
        """
        nll_N = token_likelihoods(hidden_ND, weight_VD, bias_V, targets_N, padding_id=padding_id)
        if self.rows is None:
            total = nll_N.sum()
            return total if scales_N is None else (nll_N * scales_N).sum(), total.detach()
        chosen_B, rejected_B = row_sums(nll_N, self.rows).view(-1, 2).unbind(1)
        margin_B = rejected_B - chosen_B
        preference = -F.logsigmoid(self.beta * margin_B).sum()
        loss_sum = self.tokens_per_triple * preference + self.nll_weight * chosen_B.sum()
        margin_B = margin_B.detach()
        further = torch.stack([margin_B.sum(), (margin_B > 0).sum(dtype=margin_B.dtype)])
        return loss_sum, chosen_B.detach().sum(), further


def row_sums(values_N: Tensor, rows: int | Tensor) -> Tensor:
    """(R,): sums of the values of each row; `rows` as in `CPO.rows`."""
    if isinstance(rows, int):
        return values_N.view(-1, rows).sum(1)
    up_to = F.pad(values_N.double().cumsum(0), (1, 0))  # in fp32, differences of long sums would be rounded
    return (up_to[rows[1:].long()] - up_to[rows[:-1].long()]).float()


def token_likelihoods(
    hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor, *, padding_id: int
) -> Tensor:
    """(N,): the negative log-likelihood of each target in nats and fp32, 0 of padding; differentiable, once."""
    apply: Callable[..., Tensor] = TokenLikelihoods.apply
    return apply(hidden_ND, weight_VD, bias_V, targets_N, padding_id)


class TokenLikelihoods(torch.autograd.Function):
    """`token_likelihoods` in chunks of rows; the logits are not kept but computed again for the gradient."""

    @staticmethod
    @override
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor, padding_id: int
    ) -> Tensor:
        ctx.save_for_backward(hidden_ND, weight_VD, bias_V, targets_N)
        ctx.padding_id = padding_id
        nll_N = torch.empty(len(targets_N), dtype=torch.float32, device=hidden_ND.device)
        for rows in _chunks(hidden_ND, weight_VD):
            logits = PLAIN_STEPS.multiply(hidden_ND[rows], weight_VD, bias_V)
            nll_N[rows] = PLAIN_STEPS.likelihoods_(logits, targets_N[rows, None], 0.0, False, 1.0)[0].squeeze(1)
        return nll_N.masked_fill_(targets_N == padding_id, 0.0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of each row's likelihood, p - onehot, times that of the row."""
        hidden_ND, weight_VD, bias_V, targets_N = ctx.saved_tensors
        grad_N1 = grads[0].masked_fill(targets_N == ctx.padding_id, 0.0)[:, None]
        grad_hidden_ND, grad_weight_VD = torch.empty_like(hidden_ND), None
        grad_bias_V = None if bias_V is None else torch.zeros_like(bias_V, dtype=torch.float32)
        for rows in _chunks(hidden_ND, weight_VD):
            # zero hidden states: padding rows add nothing, even where they held NaN
            h = hidden_ND[rows].masked_fill((targets_N[rows] == ctx.padding_id)[:, None], 0.0)
            grad = PLAIN_STEPS.multiply(h, weight_VD, bias_V)
            PLAIN_STEPS.likelihoods_(grad, targets_N[rows, None], 0.0, True, 1.0, grad_N1[rows])
            if grad_bias_V is not None:
                grad_bias_V += grad.sum(0, dtype=torch.float32)
            grad_hidden_ND[rows] = PLAIN_STEPS.multiply(grad, weight_VD.T)
            if ctx.needs_input_grad[1]:  # else it is frozen
                grad_weight_VD = PLAIN_STEPS.add_weight_gradient(grad_weight_VD, grad, h)
        return (
            grad_hidden_ND,
            None if grad_weight_VD is None else grad_weight_VD.to(weight_VD.dtype),
            None if grad_bias_V is None or bias_V is None else grad_bias_V.to(bias_V.dtype),
            None,
            None,
        )


def _chunks(hidden_ND: Tensor, weight_VD: Tensor) -> list[slice]:
    num_rows = len(hidden_ND)
    step = PLAIN_STEPS.chunk_rows(num_rows, weight_VD)
    return [slice(begin, begin + step) for begin in range(0, num_rows, step)]
