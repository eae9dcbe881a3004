"""Passes whose parts know where their tokens stand: forward, and again where layers are computed anew."""

import contextlib

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from model.attention import MultiHeadAttention
from model.kernels.cuda.varlen import why_not_varlen
from model.layout import Current, Layout, LayoutKind
from model.objective import Objective, ObjectiveOutput
from model.positions import check_length
from model.transformer import Stack, Transformer


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

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """See Transformer; packed, (1, N) each, and (1, N, D)."""
        layout = self.current.layout
        if layout is None or not layout.is_packed:
            return super().forward(source_BS, target_BT)
        for side in (layout.source, layout.target):
            check_length(side.longest, self.max_positions)
        memory = self.encoder(self.source_embedding(source_BS, layout.source.positions), None)
        out: Tensor = self.decoder(self.target_embedding(target_BT, layout.target.positions), memory, None)
        return out


class CudaStack(Stack):
    """Stack; layers that are computed again know the layout that they were computed with."""

    current: Current

    def forward(self, x_BLD: Tensor, *context: Tensor | None) -> Tensor:
        """See Stack."""
        if not (self.is_checkpointed and torch.is_grad_enabled()):
            return super().forward(x_BLD, *context)
        layout = self.current.layout

        def contexts() -> tuple[contextlib.AbstractContextManager[None], contextlib.AbstractContextManager[None]]:
            return contextlib.nullcontext(), self.current.using(layout)

        for layer in self.layers:
            x_BLD = checkpoint(layer, x_BLD, *context, use_reentrant=False, context_fn=contexts)
        out: Tensor = self.norm(x_BLD)
        return out
