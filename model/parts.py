"""The base classes of what `model/components/` holds: a model's parts, its loss, samplers. Imports no torch.

A part states its costs and limits, and builds its module.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from configs.components.registry import Component, kinds
from configs.errors import UserError

FLOAT = 4
"""Bytes of an fp32 number."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Storage:
    """How a device stores the activations that the backward pass needs."""

    element: int
    """Bytes of an element in the training precision."""
    mask: int
    """Bytes for each element of a dropout mask."""
    has_rms_norm: bool
    """Whether RMS norm is one kernel, which keeps one number per row and its input alone."""

    def masks(self, elements: int, probability: float) -> int:
        """Bytes of a dropout mask."""
        return elements * self.mask if probability else 0


@dataclass(kw_only=True, slots=True, frozen=True)
class LossBytes:
    """Memory of the output layer and the loss, in bytes."""

    kept: int
    """Kept from the forward to the backward pass."""
    working: int
    """Additional memory at the peak: logits in the forward pass, or gradients in the backward pass."""

    @property
    def total(self) -> int:
        """Peak memory."""
        return self.kept + self.working


class UndeclaredError(UserError):
    """A part does not state one of its costs. It can be trained, but not planned."""


@dataclasses.dataclass(kw_only=True, frozen=True)
class ModelPart(Component):
    """A part of a model, chosen in the section `model` by the key that is the name of its family."""

    programs: ClassVar[frozenset[str]] = frozenset()
    """The programs that the part can be exported to, of `huggingface` and `ctranslate2`; `exported` gives its options
    there.
    """
    same_weights: ClassVar[frozenset[str]] = frozenset({"dropout"})
    """Fields that may change when a run resumes, because they do not change the meaning of the weights."""

    packs_rows: ClassVar[bool] = False
    """Whether its module computes each token from that token alone, so that rows need no padding; an attention, whether
    `model.kernels` has one for it. Each class says so itself: a class derived from it may compute something else.
    """

    def export_problems(self, program: str, model: Any) -> Iterator[str]:
        """Why a program does not support the part, one line each, beginning with the field's path in `model`."""
        if program not in self.programs:
            known = ", ".join(kind for kind, part in kinds(self.family).items() if program in part.programs)
            yield f"{self.family}.kind: {self.kind!r}; allowed is {known}"

    def exported(self, program: str, model: Any) -> dict[str, Any]:
        """The part's options in the program's own configuration.

        Args:
            program: one of `programs`.
            model: the section `model` that this part belongs to, a `configs.ModelSection`.
        """
        raise NotImplementedError

    def plain_weights(self, weights: Mapping[str, Any], model: Any) -> dict[str, Any]:
        """Weights with which other programs compute the same function (see `zeromt.formats.plain`).

        Args:
            weights: this part's weights in one layer, by their names in the part.
            model: the section `model` that this part belongs to, a `configs.ModelSection`.
        """
        return dict(weights)

    def undeclared(self, cost: str) -> "UndeclaredError":
        """The error for a cost that a plan needs and the part does not state."""
        return UndeclaredError(
            f"model.{self.family}.kind: {self.kind!r} does not state its {cost}, which a plan needs; add a method "
            f"`{cost}` to the component, or use another kind"
        )


@dataclasses.dataclass(kw_only=True, frozen=True)
class Attention(ModelPart):
    """Attention: self-attention of both stacks, and the decoder's cross-attention to the source."""

    def problems_at(self, width: int) -> Iterator[str]:
        """Errors of the fields in a model of this width, one line each."""
        return iter(())

    def rotated_width(self, width: int) -> int | None:
        """Width of the heads, whose queries and keys rotary positions rotate; None if rotation is not supported."""
        return None

    def build(self, width: int, rotation: Any) -> Any:
        """The module, with the interface of `model.attention.MultiHeadAttention`.

        `forward(queries_BLD, memory_BSD, bias=None, *, is_causal=False, cache=None, memory_is_fixed=False)` returns
        (B, L, D). Search calls it for one position after the other, with a cache (`model.attention.AttentionCache`).

        Args:
            width: width of the model.
            rotation: module that rotates queries and keys by their positions; None without rotary positions, and in
                cross-attention.
        """
        raise NotImplementedError

    def flops(self, width: int, *, query_tokens: int, memory_tokens: int, memory_length: int) -> int:
        """FLOPs of the matmuls of a forward pass, where a multiplication and an addition are two.

        Args:
            width: width of the model.
            query_tokens, memory_tokens: numbers of tokens in the batch.
            memory_length: padded length of the memory's rows.
        """
        raise self.undeclared("flops")

    def activation_bytes(self, width: int, *, rows: int, length: int, memory_length: int, storage: Storage) -> int:
        """Bytes kept for the backward pass, without the hidden states of queries and memory.

        Args:
            width: width of the model.
            rows: number of rows in the batch.
            length, memory_length: padded lengths.
            storage: how the device stores activations.
        """
        raise self.undeclared("activation_bytes")

    def workspace_bytes(self, width: int, *, tokens: int, rows: int, storage: Storage) -> int:
        """Bytes that its backward pass needs besides gradients; a layer frees them before the next begins.

        Args:
            width: width of the model.
            tokens: number of queries in the batch.
            rows: number of rows that they are in.
            storage: how the device stores activations.
        """
        return 0

    def widest(self, width: int) -> int:
        """Elements per position of its widest activation."""
        return width


@dataclasses.dataclass(kw_only=True, frozen=True)
class FeedForward(ModelPart):
    """The feed-forward sub-layer, a function applied to each position separately."""

    program_names: ClassVar[Mapping[str, str]] = {}
    """The activation function's name in each of `programs`."""

    def build(self, width: int) -> Any:
        """The module: (..., width) to (..., width)."""
        raise NotImplementedError

    def flops(self, width: int, tokens: int) -> int:
        """FLOPs of the matmuls of a forward pass, where a multiplication and an addition are two."""
        raise self.undeclared("flops")

    def last_flops(self, width: int, tokens: int) -> int:
        """FLOPs of the matmuls whose results no gradient needs, so that recomputation skips them."""
        return 0

    def activation_bytes(self, width: int, tokens: int, storage: Storage) -> int:
        """Bytes kept for the backward pass, without the input."""
        raise self.undeclared("activation_bytes")

    def widest(self, width: int) -> int:
        """Elements per position of its widest activation."""
        return width


@dataclasses.dataclass(kw_only=True, frozen=True)
class Positions(ModelPart):
    """Positional encoding: added to embeddings, or applied as a rotation to queries and keys of self-attention."""

    def problems_at(self, width: int, head_width: int | None) -> Iterator[str]:
        """Errors in a model with these widths, one line each, beginning with the field's path in `model`.

        Args:
            width: width of the model.
            head_width: see `Attention.rotated_width`.
        """
        return iter(())

    def build(self, num_positions: int, width: int) -> Any:
        """The module for embeddings: `forward(x_BLD, start=0)`, where `start` is the position of the first embedding.

        It raises ValueError for positions beyond the last (`model.positions.check_length`).

        Args:
            num_positions: length of the longest sequence.
            width: width of the model.
        """
        raise NotImplementedError

    def build_rotation(self, num_positions: int, head_width: int) -> Any:
        """The module that rotates queries and keys of self-attention, `forward(x_BHLK, start=0)`; None without one."""
        return None

    def activation_bytes(self, width: int, tokens: int, storage: Storage) -> int:
        """Bytes that `build`'s module keeps for the backward pass."""
        return 0

    def rotation_bytes(self, numbers: int, storage: Storage) -> int:
        """Bytes that `build_rotation`'s module keeps for the backward pass.

        Args:
            numbers: number of elements of a layer's queries and keys.
            storage: how the device stores activations.
        """
        return 0

    def table(self, module: Any, num_positions: int, width: int) -> Any:
        """The table that is added to embeddings, (num_positions, width) in fp32; None if exports need no table.

        Args:
            module: the module from `build`.
            num_positions, width: those of the model.
        """
        return None

    def has_own_table(self, program: str) -> bool:
        """Whether a program computes the same table itself, perhaps with another order of dimensions."""
        return False

    def sines_first(self, width: int) -> Sequence[int] | None:
        """The permutation of dimensions that puts all sines before all cosines; None if they are in this order."""
        return None


@dataclasses.dataclass(kw_only=True, frozen=True)
class Norm(ModelPart):
    """Normalisation of each position over the model's width."""

    def build(self, width: int) -> Any:
        """The module: (..., width) to (..., width)."""
        raise NotImplementedError

    def activation_bytes(self, width: int, tokens: int, storage: Storage) -> int:
        """Bytes kept for the backward pass, including the input."""
        raise self.undeclared("activation_bytes")

    def plain_eps(self, width: int) -> float:
        """The eps with which the LayerNorm or RMSNorm of other programs computes the same result."""
        raise NotImplementedError


@dataclasses.dataclass(kw_only=True, frozen=True)
class Residual(ModelPart):
    """The order of a sub-layer, its norm, dropout and the residual sum."""

    is_post_norm: ClassVar[bool] = False
    """Whether norms come after the sum. If not, nothing normalises the residual stream, and it needs a final norm."""

    def build(self, width: int, norm: Norm, dropout: float, *, is_last: bool) -> Any:
        """The module: `forward(x, sublayer)`, (..., width) to (..., width).

        Args:
            width: width of the model.
            norm: component that builds the norms.
            dropout: probability of dropout.
            is_last: whether the sub-layer is the last of its layer.
        """
        raise NotImplementedError

    def activation_bytes(
        self, width: int, norm: Norm, dropout: float, *, tokens: int, is_last: bool, storage: Storage
    ) -> int:
        """Bytes kept for the backward pass: the sub-layer's input, norm and dropout."""
        mask = storage.masks(tokens * width, dropout)
        given = tokens * width * storage.element
        return given + norm.activation_bytes(width, tokens, storage) + self.num_masks(is_last=is_last) * mask

    def num_masks(self, *, is_last: bool) -> int:
        """Number of dropout masks."""
        return 1

    def needs_result(self, dropout: float) -> bool:
        """Whether a gradient needs the sub-layer's output; if not, recomputation skips it."""
        return True


@dataclasses.dataclass(kw_only=True, frozen=True)
class Initialisation(Component):
    """Initialises a new model's weights. Norms and positions are initialised by their own modules."""

    def fill(self, model: Any, width: int) -> None:
        """Draw the weights of a model. Its linear layers and embeddings still have torch's initial values.

        Args:
            model: the model, complete except that matrices to be tied are still separate.
            width: width of the model.
        """
        raise NotImplementedError


@dataclasses.dataclass(kw_only=True, frozen=True)
class Loss(Component):
    """The training loss, a function of hidden states and the output matrix."""

    def build(self) -> Any:
        """A function `(hidden_ND, weight_VD, bias_V, targets_N, *, padding_id)` of tensors; see `model.loss.Loss`."""
        raise NotImplementedError

    def signature(self) -> str:
        """The kind and fields as text. Values of losses with different signatures are not compared."""
        fields = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return " ".join(f"{name}={value}" for name, value in fields)

    def flops(self, width: int, tokens: int, vocabulary: int) -> int:
        """FLOPs of the matmuls of a forward pass, where a multiplication and an addition are two."""
        return 2 * tokens * width * vocabulary

    def activation_bytes(
        self, width: int, tokens: int, vocabulary: int, *, has_bias: bool, storage: Storage
    ) -> LossBytes:
        """Memory of the output layer and the loss; by default that of torch's own cross-entropy.

        This keeps the hidden states, and all log-probabilities in fp32. The backward pass adds the gradients of the
        log-probabilities, of the logits and of the output matrix.
        """
        logits, hidden = tokens * vocabulary, tokens * width * storage.element
        gradients = logits * (FLOAT + storage.element) + width * vocabulary * storage.element
        return LossBytes(kept=hidden + logits * FLOAT, working=gradients)


@dataclasses.dataclass(kw_only=True, frozen=True)
class Sampler(Component):
    """Computes the distribution that the next piece is drawn from. The search draws from it."""

    def candidates(self, log_p_NV: Any) -> tuple[Any, Any]:
        """The candidates for the next piece of each row.

        Args:
            log_p_NV: log-probabilities of the vocabulary, an fp32 tensor, which must not be modified. Forbidden pieces,
                such as all except EOS at the maximum length, have -1e30 and must get probability 0.

        Returns:
            Two tensors (N, C): probabilities, most probable first, which need not sum to 1, and the pieces' ids.
        """
        raise NotImplementedError

    def exported(self, program: str) -> dict[str, Any] | None:
        """Another program's options for the same sampling; None if the program does not support it.

        Args:
            program: `huggingface` (options of `generate`) or `ctranslate2` (options of `translate_batch`).
        """
        return None
