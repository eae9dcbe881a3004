"""Forward passes, and recomputed ones, whose modules know the position of each token."""

import contextlib
import functools
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from typing_extensions import override

from model.attention import MultiHeadAttention
from model.kernels.cuda.attention import CudaAttention, why_not_varlen
from model.kernels.cuda.linear import apart, can_join, has_hooks, join
from model.kernels.cuda.search import share
from model.layout import Current, Layout, LayoutKind, Projection
from model.objective import Objective, ObjectiveOutput
from model.positions import check_length
from model.transformer import DecoderLayer, DecoderState, EncoderLayer, Stack, Transformer

_MEMORY = "memory"


def _packs_rows(part: object) -> bool:
    """Whether its class says so of itself; one derived from it may mix rows."""
    return bool(vars(type(part)).get("packs_rows", False))


class CudaObjective(Objective):
    """Objective whose dropout follows the layout, if there is one."""

    current: Current

    @override
    def layout_kind(self, device: torch.device, dtype: torch.dtype) -> tuple[LayoutKind, str]:
        """On a CPU (in tests) rows are packed in every precision, with plain attention."""
        section = self.model.section
        for part in (section.attention, section.feed_forward, section.positions, section.norm, section.residual):
            if not _packs_rows(part):
                return "padded", f"model.{part.family}.kind: {part.kind} may mix rows"
        for module in self.modules():
            is_ours = type(module).__module__.startswith(("model.", "torch.nn."))
            if not (is_ours or _packs_rows(module)):
                return "padded", f"{type(module).__name__} may mix rows"
            if isinstance(module, MultiHeadAttention) and not isinstance(module, CudaAttention):
                return "padded", f"{type(module).__name__} has no kernel for packed rows"
            if isinstance(module, CudaAttention):
                if module.dropout.p:
                    return "padded", "attention without padding needs model.attention.dropout: 0"
                if device.type == "cuda" and (why := why_not_varlen(device, dtype, module.head_width)) is not None:
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
        """Sums of loss and negative log-likelihood over the non-padding targets.

        Args:
            source_BS, target_input_BT, target_output_BT: (1, N) each if the layout is packed.
            gradient_scale: as of Objective.
            layout: of these tokens; without one, rows are padded and dropout uses torch's generator.
        """
        with self.current.using(layout):
            return super().forward(source_BS, target_input_BT, target_output_BT, gradient_scale)


class CudaTransformer(Transformer):
    """Transformer; in a packed pass it embeds each token at its own position and masks no padding."""

    current: Current

    @override
    def start(self, source_BS: Tensor) -> DecoderState:
        return share(super().start(source_BS))

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """In a packed pass (1, N) each to (1, N, D)."""
        layout = self.current.layout
        if layout is None or not layout.is_packed:
            return super().forward(source_BS, target_BT)
        for side in (layout.source, layout.target):
            check_length(side.longest, self.max_positions)
        projections = self._projections()
        with self.current.using(layout, projections):
            memory = self.encoder(self.source_embedding(source_BS, layout.source.positions), None)
        if _MEMORY in projections:  # one matmul for keys and values of all layers
            both = iter(projections[_MEMORY](memory))
            for layer in cast(list[DecoderLayer], self.decoder.layers):
                projections[cast(CudaAttention, layer.cross_attention).name] = _constant(next(both), next(both))
        with self.current.using(layout, projections):
            out: Tensor = self.decoder(self.target_embedding(target_BT, layout.target.positions), memory, None)
        return out

    def _projections(self) -> dict[str, Projection]:
        """The joined projections of attention by name: one matmul for each input, all from one copy of the weights.

        Empty if layers are compiled, because every new function would recompile them. If they have hooks, in which
        ZeRO-3 gathers a layer's weights, each projection is a matmul: a copy would keep its weights whole for a pass.
        """
        if any(layer._compiled_call_impl is not None for layer in self.layers):
            return {}
        groups: dict[str, list[nn.Linear]] = {}
        for layer in cast(list[EncoderLayer], self.layers):
            part = cast(CudaAttention, layer.self_attention)
            groups[part.name] = [part.query, part.key, part.value]
        cross = [cast(CudaAttention, layer.cross_attention) for layer in cast(list[DecoderLayer], self.decoder.layers)]
        if any(map(has_hooks, self.layers)):
            groups |= {part.name: [part.key, part.value] for part in cross}
            return {name: functools.partial(apart, layers) for name, layers in groups.items()}
        groups[_MEMORY] = [projection for part in cross for projection in (part.key, part.value)]
        return dict(join(groups)) if can_join([layer for group in groups.values() for layer in group]) else {}


def _constant(*results: Tensor) -> Projection:
    return lambda _: results


class CudaStack(Stack):
    """Stack whose recomputed layers use the layout of their first computation."""

    current: Current

    @override
    def forward(self, x_BLD: Tensor, *context: Tensor | None) -> Tensor:
        if not (self.is_checkpointed and torch.is_grad_enabled()):
            return super().forward(x_BLD, *context)
        then = self.current.layout, self.current.projections

        def contexts() -> tuple[contextlib.AbstractContextManager[None], contextlib.AbstractContextManager[None]]:
            return contextlib.nullcontext(), self.current.using(*then)

        for layer in self.layers:
            x_BLD = checkpoint(layer, x_BLD, *context, use_reentrant=False, context_fn=contexts)
        out: Tensor = self.norm(x_BLD)
        return out
