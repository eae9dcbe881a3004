"""Sums in fp32 of gradients that are in half precision."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from trainer.engines.deepspeed.config import BUCKET_ELEMENTS


class GradientSum:
    """Sums of gradients over micro-batches, concatenated in a flat fp32 tensor.

    After each micro-batch the gradients are concatenated and added by one kernel; autograd would need two per gradient,
    to cast and to add. This is done in pieces of at most `BUCKET_ELEMENTS` elements, so that there is no second copy of
    all gradients.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], flat: Tensor | None = None) -> None:
        """Start with sums of 0.

        Args:
            parameters: in half precision, all on one device.
            flat: an fp32 tensor with at least as many elements; None allocates one.
        """
        size = sum(p.numel() for p in parameters)
        device = parameters[0].device if parameters else None
        self.flat = torch.zeros(size, dtype=torch.float32, device=device) if flat is None else flat
        self._parameters = list(parameters)
        pieces = torch.split(self.flat[:size], [p.numel() for p in parameters])
        self.views = [piece.view_as(p) for piece, p in zip(pieces, parameters, strict=True)]
        """Each parameter's part of the sum."""

    @torch.no_grad()
    def add(self) -> None:
        """Add the parameters' gradients and clear them. An unused parameter has none."""
        begin = 0
        for bucket in self._buckets():
            gradients = [p.grad for p in bucket if p.grad is not None]
            size = sum(p.numel() for p in bucket)
            if len(gradients) == len(bucket) and self.flat.device.type != "cpu":
                self.flat[begin : begin + size].add_(torch.cat([g.reshape(-1) for g in gradients]))
            else:
                self._add_one_by_one(bucket, begin)
            for p in bucket:
                p.grad = None
            begin += size

    def _add_one_by_one(self, bucket: Sequence[nn.Parameter], begin: int) -> None:
        """Add each by itself: on a CPU there are no kernel launches, and small tensors stay in its cache."""
        for p in bucket:
            if p.grad is not None:
                self.flat[begin : begin + p.numel()].add_(p.grad.reshape(-1))
            begin += p.numel()

    def _buckets(self) -> Iterator[list[nn.Parameter]]:
        bucket: list[nn.Parameter] = []
        size = 0
        for p in self._parameters:
            if bucket and size + p.numel() > BUCKET_ELEMENTS:
                yield bucket
                bucket, size = [], 0
            bucket.append(p)
            size += p.numel()
        if bucket:
            yield bucket
