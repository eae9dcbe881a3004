"""Gradients in half precision, added up in fp32."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from trainer.engines.deepspeed.config import BUCKET_ELEMENTS


class GradientSum:
    """Sums of gradients over micro-batches, one behind the other in a flat fp32 tensor.

    After a micro-batch they are laid side by side, and added in one kernel: autograd would take two for each, to cast
    and to add. In pieces of at most `BUCKET_ELEMENTS` elements, or there would be all of them twice.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], flat: Tensor | None = None) -> None:
        """Begin at 0.

        Args:
            parameters: in half precision, all on one device.
            flat: of as many elements or more, fp32; a new one where None.
        """
        size = sum(p.numel() for p in parameters)
        device = parameters[0].device if parameters else None
        self.flat = torch.zeros(size, dtype=torch.float32, device=device) if flat is None else flat
        self._parameters = list(parameters)
        pieces = torch.split(self.flat[:size], [p.numel() for p in parameters])
        self.views = [piece.view_as(p) for piece, p in zip(pieces, parameters, strict=True)]
        """Of each parameter."""

    @torch.no_grad()
    def add(self) -> None:
        """Take the parameters' gradients and add them. A parameter that was not used has none."""
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
        """On a CPU nothing is launched, and what is small stays in its cache."""
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
