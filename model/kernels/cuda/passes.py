"""Passes whose parts know where their tokens stand: forward, and again where layers are computed anew."""

import contextlib
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from model.attention import MultiHeadAttention
from model.kernels.cuda.attention import CudaAttention
from model.kernels.cuda.search import share
from model.kernels.cuda.together import can_join, join
from model.kernels.cuda.varlen import why_not_varlen
from model.layout import Current, Layout, LayoutKind, Product
from model.objective import Objective, ObjectiveOutput
from model.positions import check_length
from model.transformer import DecoderLayer, DecoderState, EncoderLayer, Stack, Transformer

_MEMORY = "memory"


class CudaObjective(Objective):
    """Objective; with a layout, dropout goes by it."""

    current: Current

    def layout_kind(self, device: torch.device, dtype: torch.dtype) -> tuple[LayoutKind, str]:
        """See Objective. On a CPU and in tests rows are packed whatever the precision, by plain attention."""
        for part in self.modules():
            if not type(part).__module__.startswith(("model.", "torch.nn.")):
                return "padded", f"{type(part).__name__} may look across rows"
            if isinstance(part, MultiHeadAttention):
                if part.dropout.p:
                    return "padded", "attention without padding has no dropout (model.attention.dropout)"
                if device.type == "cuda" and (why := why_not_varlen(device, dtype, part.head_width)) is not None:
                    return "padded", why
        return "packed", ""

    def forward(
        self,
        source_BS: Tensor,
        target_input_BT: Tensor,
        target_output_BT: Tensor,
        gradient_scale: float = 1.0,
        layout: Layout | None = None,
    ) -> ObjectiveOutput:
        """See Objective.

        Args:
            source_BS, target_input_BT, target_output_BT: (1, N) each where the layout is packed.
            gradient_scale: see Objective.
            layout: of these tokens; without one, dropout is drawn from torch's generator and rows are padded.
        """
        with self.current.using(layout):
            return super().forward(source_BS, target_input_BT, target_output_BT, gradient_scale)


class CudaTransformer(Transformer):
    """Transformer; packed, it embeds each token at its own position and hides no padding."""

    current: Current

    def start(self, source_BS: Tensor) -> DecoderState:
        """See Transformer."""
        return share(super().start(source_BS))

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """See Transformer; packed, (1, N) each, and (1, N, D)."""
        layout = self.current.layout
        if layout is None or not layout.is_packed:
            return super().forward(source_BS, target_BT)
        for side in (layout.source, layout.target):
            check_length(side.longest, self.max_positions)
        products = self._products()
        with self.current.using(layout, products):
            memory = self.encoder(self.source_embedding(source_BS, layout.source.positions), None)
        if _MEMORY in products:  # keys and values of all layers
            both = iter(products[_MEMORY](memory))
            for layer in cast(list[DecoderLayer], self.decoder.layers):
                products[cast(CudaAttention, layer.cross_attention).name] = _known(next(both), next(both))
        with self.current.using(layout, products):
            out: Tensor = self.decoder(self.target_embedding(target_BT, layout.target.positions), memory, None)
        return out

    def _products(self) -> dict[str, Product]:
        """Of what attention projects: from one input by one matmul each, all by one copy of the weights.

        None where layers are compiled, which would be done anew for every new product.
        """
        if any(layer._compiled_call_impl is not None for layer in self.layers):
            return {}
        groups: dict[str, list[nn.Linear]] = {}
        for layer in cast(list[EncoderLayer], self.layers):
            part = cast(CudaAttention, layer.self_attention)
            groups[part.name] = [part.query, part.key, part.value]
        cross = [cast(CudaAttention, layer.cross_attention) for layer in cast(list[DecoderLayer], self.decoder.layers)]
        groups[_MEMORY] = [projection for part in cross for projection in (part.key, part.value)]
        return dict(join(groups)) if can_join([layer for group in groups.values() for layer in group]) else {}


def _known(*results: Tensor) -> Product:
    return lambda _: results


class CudaStack(Stack):
    """Stack; layers that are computed again know the layout that they were computed with."""

    current: Current

    def forward(self, x_BLD: Tensor, *context: Tensor | None) -> Tensor:
        """See Stack."""
        if not (self.is_checkpointed and torch.is_grad_enabled()):
            return super().forward(x_BLD, *context)
        then = self.current.layout, self.current.products

        def contexts() -> tuple[contextlib.AbstractContextManager[None], contextlib.AbstractContextManager[None]]:
            return contextlib.nullcontext(), self.current.using(*then)

        for layer in self.layers:
            x_BLD = checkpoint(layer, x_BLD, *context, use_reentrant=False, context_fn=contexts)
        out: Tensor = self.norm(x_BLD)
        return out
