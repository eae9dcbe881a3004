"""Forward passes, and recomputed ones, whose modules know the position of each token."""

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from typing_extensions import override

from model.attention import MultiHeadAttention
from model.kernels.cuda.attention import Attends, CudaAttention
from model.kernels.cuda.linear import HOOKS, can_join, join
from model.kernels.cuda.residuals import normalised
from model.kernels.cuda.ways import WAYS, why_not
from model.layout import Current, Layout, LayoutKind, Projection
from model.positions import check_length
from model.transformer import (
    DecoderLayer,
    EncoderLayer,
    LayerCache,
    Objective,
    ObjectiveOutput,
    Stack,
    Transformer,
)

_MEMORY = "memory"


def _packs_rows(part: object) -> bool:
    """Whether its class says so of itself; one derived from it may mix rows."""
    return bool(vars(type(part)).get("packs_rows", False))


class CudaObjective(Objective):
    """Objective whose dropout follows the layout, if there is one."""

    current: Current

    @override
    def layouts(self, device: torch.device, dtype: torch.dtype) -> dict[LayoutKind, str]:
        """On a CPU (in tests) rows are packed in every precision, with plain attention."""
        mixes = self._mixes()
        return {way: mixes or self._why_not(way, device, dtype) for way in WAYS} | {"padded": ""}

    def _mixes(self) -> str:
        """Which part of the model may look across packed rows; empty if none does."""
        section = self.model.section
        for part in (section.attention, section.feed_forward, section.positions, section.norm, section.residual):
            if not _packs_rows(part):
                return f"model.{part.family}.kind: {part.kind} may mix rows"
        for module in self.modules():
            is_ours = type(module).__module__.startswith(("model.", "torch.nn."))
            if not (is_ours or _packs_rows(module)):
                return f"{type(module).__name__} may mix rows"
            if isinstance(module, MultiHeadAttention) and not isinstance(module, CudaAttention):
                return f"{type(module).__name__} has no kernel for packed rows"
        return ""

    def _why_not(self, way: LayoutKind, device: torch.device, dtype: torch.dtype) -> str:
        for module in self.modules():
            if isinstance(module, CudaAttention):
                if module.dropout.p:
                    return "it needs model.attention.dropout: 0"
                if why := why_not(way, device, dtype, module.head_width):
                    return why
        return ""

    def forward(
        self,
        source_BS: Tensor,
        target_input_BT: Tensor,
        target_output_BT: Tensor,
        layout: Layout | None = None,
        *,
        gradient_scale: Callable[[], Tensor] | None = None,
        scales_BT: Tensor | None = None,
    ) -> ObjectiveOutput:
        """Sums of loss and negative log-likelihood over the non-padding targets.

        Args:
            source_BS, target_input_BT, target_output_BT: (1, N) each if the layout is packed.
            layout: of these tokens; without one, rows are padded and dropout uses torch's generator.
            gradient_scale, scales_BT: as of Objective; scales are (1, N) if the layout is packed.
        """
        with self.current.using(layout):
            return super().forward(
                source_BS, target_input_BT, target_output_BT, gradient_scale=gradient_scale, scales_BT=scales_BT
            )


class CudaTransformer(Transformer):
    """Transformer; in a packed pass it embeds each token at its own position and masks no padding."""

    current: Current

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """In a packed pass (1, N) each to (1, N, D)."""
        layout = self.current.layout
        if layout is None or not layout.is_packed:
            return super().forward(source_BS, target_BT)
        for side in (layout.source, layout.target):
            check_length(0, side.longest, self.max_positions)
        is_bare = not any(self.hooks)
        projections: dict[str, Projection] = dict(join(self.groups)) if is_bare and self.can_join else {}
        with self.current.using(layout, projections, is_bare=is_bare):
            memory = self.encoder(self.source_embedding(source_BS, layout.source.positions), None)
        if _MEMORY in projections:  # one matmul for keys and values of all layers
            both = iter(projections[_MEMORY](memory))
            for name in self.of_memory:
                projections[name] = _constant(next(both), next(both))
        with self.current.using(layout, projections, is_bare=is_bare):
            out: Tensor = self.decoder(self.target_embedding(target_BT, layout.target.positions), memory, None)
        return out

    def plan(self) -> None:
        """Note whose hooks are to be looked at before a pass, and which linear layers have the same input.

        Where layers have hooks, in which ZeRO-3 gathers their weights, nothing is joined: a copy would keep the weights
        whole for a pass.
        """
        self.hooks = tuple(getattr(part, kind) for layer in self.layers for part in layer.modules() for kind in HOOKS)
        of_self, of_memory = (
            [part for layer in layers if isinstance(part := getattr(layer, name), CudaAttention)]
            for layers, name in ((self.layers, "self_attention"), (self.decoder.layers, "cross_attention"))
        )
        self.of_memory = [part.name for part in of_memory]
        self.groups = {part.name: [part.query, part.key, part.value] for part in of_self}
        self.groups[_MEMORY] = [layer for part in of_memory for layer in (part.key, part.value)]
        self.can_join = can_join([layer for layers in self.groups.values() for layer in layers])


def _constant(*results: Tensor) -> Projection:
    return lambda _: results


class CudaStack(Stack):
    """Stack whose recomputed layers use the layout of their first computation."""

    current: Current

    @override
    def forward(self, x_BLD: Tensor, *context: Tensor | None) -> Tensor:
        if not (self.is_checkpointed and torch.is_grad_enabled()):
            is_bare = self.current.is_bare
            for layer in self.layers:
                x_BLD = layer.forward(x_BLD, *context) if is_bare else layer(x_BLD, *context)
            return normalised(self.current, x_BLD, self.norm)
        then, is_bare = (self.current.layout, self.current.projections), self.current.is_bare

        def contexts() -> tuple[contextlib.AbstractContextManager[None], contextlib.AbstractContextManager[None]]:
            return contextlib.nullcontext(), self.current.using(*then, is_bare=is_bare)

        for layer in self.layers:
            x_BLD = checkpoint(layer, x_BLD, *context, use_reentrant=False, context_fn=contexts)
        out: Tensor = self.norm(x_BLD)
        return out


class CudaEncoderLayer(EncoderLayer):
    """EncoderLayer for GPUs. `use` of this package sets its attribute.

    Where nothing looks into a pass, its parts are called without torch's way to a module: that way, two calls for each
    part and one for each look at an attribute, takes as long on the host as some kernels on a GPU.
    """

    current: Current

    @override
    def forward(self, x_BSD: Tensor, bias: Tensor | None) -> Tensor:
        layout = self.current.layout
        parts: Any = self._modules
        attention = parts["self_attention"]
        if not self.current.is_bare or layout is None or not layout.is_packed or type(attention) is not CudaAttention:
            return super().forward(x_BSD, bias)
        x_BSD = parts["self_attention_residual"].forward(x_BSD, Attends(attention, None))
        out: Tensor = parts["feed_forward_residual"].forward(x_BSD, parts["feed_forward"].forward)
        return out


class CudaDecoderLayer(DecoderLayer):
    """DecoderLayer for GPUs. `use` of this package sets its attribute."""

    current: Current

    @override
    def forward(
        self, x_BTD: Tensor, memory_BSD: Tensor, memory_bias: Tensor | None, cache: LayerCache | None = None
    ) -> Tensor:
        layout = self.current.layout
        parts: Any = self._modules
        if not self.current.is_bare or cache is not None or layout is None or not layout.is_packed:
            return super().forward(x_BTD, memory_BSD, memory_bias, cache)
        attention, cross = parts["self_attention"], parts["cross_attention"]
        if type(attention) is not CudaAttention or type(cross) is not CudaAttention:
            return super().forward(x_BTD, memory_BSD, memory_bias, cache)
        x_BTD = parts["self_attention_residual"].forward(x_BTD, Attends(attention, None, is_causal=True))
        x_BTD = parts["cross_attention_residual"].forward(x_BTD, Attends(cross, memory_BSD))
        out: Tensor = parts["feed_forward_residual"].forward(x_BTD, parts["feed_forward"].forward)
        return out
