"""Norms, residual orders and initialisations of the reference systems. The equations: `model.reference`."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from configs.components import component
from configs.fields import PositiveFloat
from model.components.norm import LayerNorm, Post
from model.parts import Initialisation, Norm, Storage

if TYPE_CHECKING:
    from torch import Tensor, nn

    from configs.model import ModelSection


@dataclasses.dataclass(kw_only=True, frozen=True)
class _Scalars(Norm):
    """weight * (x - mean) / (std + eps) + bias, with scalar weight and bias and the sample std (divisor n - 1)."""

    initial_bias: ClassVar[float] = 0.0

    eps: PositiveFloat = 1e-5
    """Added to the denominator."""

    @override
    def build(self, width: int) -> "nn.Module":
        from model.reference.modules import ScalarNorm

        return ScalarNorm(width, self.eps, initial_bias=self.initial_bias)

    def activation_bytes(self, width: int, tokens: int, storage: Storage) -> int:
        """Three tensors of the model's width, and for each token the std and std + eps."""
        return 3 * tokens * width * storage.element + 2 * tokens * storage.element


@component("norm", "scalar")
class Scalar(_Scalars):
    """weight * (x - mean) / (std + eps) + bias, with scalar weight and bias and the sample std (divisor n - 1)."""

    packs_rows: ClassVar[bool] = True


@component("norm", "scalar_from_ones")
class ScalarFromOnes(_Scalars):
    """As scalar, with bias initialised to 1."""

    packs_rows: ClassVar[bool] = True
    initial_bias: ClassVar[float] = 1.0


@component("norm", "sample")
class Sample(LayerNorm):
    """A layer norm with the sample variance (divisor n - 1)."""

    packs_rows: ClassVar[bool] = True

    eps: PositiveFloat = 1e-5
    """Added to the denominator."""

    @override
    def build(self, width: int) -> "nn.Module":
        from model.reference.modules import SampleNorm

        return SampleNorm(width, self.eps)

    def activation_bytes(self, width: int, tokens: int, storage: Storage) -> int:
        """Three tensors of the model's width, and for each token the std."""
        return 3 * tokens * width * storage.element + tokens * storage.element

    @override
    def plain_eps(self, width: int) -> float:
        return self.eps * _sample_ratio(width)

    def plain_weights(self, weights: Mapping[str, "Tensor"], model: "ModelSection") -> dict[str, "Tensor"]:
        """Rescaled for the population variance (divisor n), which other programs use."""
        return {**weights, "weight": weights["weight"] * _sample_ratio(model.d_model) ** 0.5}


def _sample_ratio(width: int) -> float:
    """Population variance over sample variance: (n - 1) / n."""
    return (width - 1) / width


@component("residual", "post_dropout_last")
class PostDropoutLast(Post):
    """dropout(norm(x + sublayer(x)))."""

    packs_rows: ClassVar[bool] = True

    @override
    def build(self, width: int, norm: Norm, dropout: float, *, is_last: bool) -> "nn.Module":
        from model.reference.modules import PostNormDropoutLast

        return PostNormDropoutLast(norm.build(width), dropout, is_last=is_last)


@component("residual", "post_block_dropout")
class PostBlockDropout(Post):
    """norm(x + sublayer(x)); for the last sub-layer of a layer dropout(norm(x + dropout(sublayer(x))))."""

    packs_rows: ClassVar[bool] = True

    @override
    def build(self, width: int, norm: Norm, dropout: float, *, is_last: bool) -> "nn.Module":
        from model.reference.modules import PostNormBlockDropout

        return PostNormBlockDropout(norm.build(width), dropout, is_last=is_last)

    @override
    def num_masks(self, *, is_last: bool) -> int:
        return 2 if is_last else 0


@component("initialisation", "torch")
class TorchDefaults(Initialisation):
    """torch's defaults: linear layers uniform within 1 / sqrt(inputs), embeddings standard normal."""

    @override
    def fill(self, model: "nn.Module", width: int) -> None:
        from model.reference.modules import torch_defaults

        torch_defaults(model, width)


@component("initialisation", "xavier_matrices")
class XavierMatrices(Initialisation):
    """All matrices Xavier-uniform (Glorot and Bengio, 2010), embeddings and output included; biases as in torch."""

    @override
    def fill(self, model: "nn.Module", width: int) -> None:
        from model.reference.modules import xavier_matrices

        xavier_matrices(model, width)
