"""The loss on a CPU: no padding rows, few different chunk sizes, and blocks that fit the cache of a core."""

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from model.kernels.cpu.linear import add_weight_gradient, multiply, rounded_rows, uses_onednn
from model.loss import CrossEntropy, Loss, LossSteps, OutputLayer

CHUNK_ELEMENTS = 1 << 24
"""Logits in memory at once: 64 MB in fp32, unless `MIN_CHUNK_ROWS` needs more."""
MIN_CHUNK_ROWS = 256
"""With fewer rows, adding a chunk's gradient to that of the whole weight takes longer than the matmul."""
BLOCK_ELEMENTS = 1 << 19
"""Logits that become probabilities at once: 2 MB in fp32, which fits the cache of a core."""


class CpuOutputLayer(OutputLayer):
    """OutputLayer whose cross-entropy skips padding. Other losses are unchanged."""

    @override
    def sums(
        self, hidden_ND: Tensor, targets_N: Tensor, loss: Loss, scales_N: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        if type(loss) is not CrossEntropy:
            return super().sums(hidden_ND, targets_N, loss, scales_N)
        rows = (targets_N != self.padding_id).nonzero()[:, 0]
        targets_N = targets_N.index_select(0, rows)
        if uses_onednn(hidden_ND, self.weight):  # repeats the first row as padding
            more = -len(rows) % CPU_STEPS.chunk_rows(len(rows), self.weight)
            rows, targets_N = F.pad(rows, (0, more)), F.pad(targets_N, (0, more), value=self.padding_id)
        hidden_ND = hidden_ND.index_select(0, rows)
        if scales_N is not None:
            scales_N = scales_N.index_select(0, rows)
        return loss(
            hidden_ND, self.weight, self.bias, targets_N, padding_id=self.padding_id, scales_N=scales_N, steps=CPU_STEPS
        )


class CpuLossSteps(LossSteps):
    """The chunked loss with this package's matmuls, in blocks that fit the cache."""

    def chunk_rows(self, num_rows: int, weight_VD: Tensor) -> int:
        """Rows of a chunk: one of few sizes over all batches (see `model.kernels.cpu.linear`)."""
        most = rounded_rows(max(MIN_CHUNK_ROWS, CHUNK_ELEMENTS // weight_VD.shape[0]), up=False)
        num_chunks = max(1, -(-num_rows // most))
        return max(1, rounded_rows(-(-num_rows // num_chunks)))

    @override
    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return multiply(x, weight, bias)

    @override
    def add_weight_gradient(self, total_OI: Tensor | None, grad_RO: Tensor, x_RI: Tensor) -> Tensor:
        return add_weight_gradient(total_OI, grad_RO, x_RI)

    @override
    def likelihoods_(
        self,
        logits_NV: Tensor,
        targets_N1: Tensor,
        smoothing: float,
        with_grad: bool,
        gradient_scale: float,
        scales_N1: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Works on some rows at a time, which fit the cache."""
        vocab = logits_NV.shape[1]
        rows = max(1, BLOCK_ELEMENTS // vocab)
        nlls = []
        blocks, targets = torch.split(logits_NV, rows), torch.split(targets_N1, rows)
        scales = [None] * len(blocks) if scales_N1 is None else torch.split(scales_N1, rows)
        for block, t, scale in zip(blocks, targets, scales, strict=True):
            x = block.float()
            x.sub_(x.amax(1, keepdim=True))
            picked, mean = x.gather(1, t), x.mean(1, keepdim=True)
            total = x.exp_().sum(1, keepdim=True)
            log_total = total.log()
            nlls.append((log_total - picked, log_total - mean))
            if with_grad:
                x.mul_(total.reciprocal_()).sub_(smoothing / vocab)
                x.scatter_add_(1, t, torch.full_like(picked, smoothing - 1))
                if scale is not None:
                    x.mul_(gradient_scale * scale)
                elif gradient_scale != 1:
                    x.mul_(gradient_scale)
                if x.dtype != block.dtype:
                    block.copy_(x)
        nll, mean_nll = zip(*nlls, strict=True)
        return torch.cat(nll), torch.cat(mean_nll)


CPU_STEPS = CpuLossSteps()
