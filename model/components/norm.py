"""Norms, and the order of norm, dropout and residual connection: fields, costs and limits."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from configs.components import component
from configs.fields import PositiveFloat
from model.parts import FLOAT, Norm, Storage

if TYPE_CHECKING:
    from torch import nn

    from configs.model import ModelSection
from model.parts import Residual

HUGGINGFACE_EPS = 1e-5
"""eps of the layer norms in the Hugging Face architectures that exports are written for."""
_EPS_TOLERANCE = 1e-6


def huggingface_eps_problems(norm: Norm, eps: float, model: "ModelSection") -> Iterator[str]:
    """The error if Hugging Face Transformers cannot represent a norm's eps."""
    if abs(norm.plain_eps(model.d_model) - HUGGINGFACE_EPS) > _EPS_TOLERANCE:
        yield f"norm.eps: {eps} must be {HUGGINGFACE_EPS} for this export"


@component("norm", "layer")
class LayerNorm(Norm):
    """Layer normalisation (Ba et al., 2016)."""

    packs_rows: ClassVar[bool] = True
    programs: ClassVar[frozenset[str]] = frozenset({"huggingface", "ctranslate2"})

    eps: PositiveFloat = 1e-5
    """Added to the variance, to avoid division by zero."""

    @override
    def build(self, width: int) -> "nn.Module":
        from torch import nn

        return nn.LayerNorm(width, eps=self.eps)

    def activation_bytes(self, width: int, tokens: int, storage: Storage) -> int:
        """The input, and a mean and a reciprocal standard deviation for each token."""
        return tokens * width * storage.element + 2 * tokens * FLOAT

    @override
    def plain_eps(self, width: int) -> float:
        return self.eps

    @override
    def export_problems(self, program: str, model: "ModelSection") -> Iterator[str]:
        yield from super().export_problems(program, model)
        if program == "huggingface":
            yield from huggingface_eps_problems(self, self.eps, model)

    @override
    def exported(self, program: str, model: "ModelSection") -> dict[str, Any]:
        return {} if program == "huggingface" else {"rms_norm": False}


@component("norm", "rms")
class RmsNorm(Norm):
    """RMS norm: division by the root mean square (Zhang and Sennrich, 2019)."""

    packs_rows: ClassVar[bool] = True
    programs: ClassVar[frozenset[str]] = frozenset({"ctranslate2"})

    eps: PositiveFloat = 1e-5
    """Added to the mean square, to avoid division by zero."""

    @override
    def build(self, width: int) -> "nn.Module":
        from torch import nn

        return nn.RMSNorm(width, eps=self.eps)

    def activation_bytes(self, width: int, tokens: int, storage: Storage) -> int:
        """The input and a reciprocal root mean square; without a fused kernel, the normalised input too."""
        return tokens * width * storage.element * (1 if storage.has_rms_norm else 2) + tokens * FLOAT

    @override
    def plain_eps(self, width: int) -> float:
        return self.eps

    @override
    def exported(self, program: str, model: "ModelSection") -> dict[str, Any]:
        return {"rms_norm": True}


@component("residual", "pre")
class Pre(Residual):
    """x + dropout(sublayer(norm(x))) (Xiong et al., 2020): trains without a delicate warm-up."""

    packs_rows: ClassVar[bool] = True
    programs: ClassVar[frozenset[str]] = frozenset({"huggingface", "ctranslate2"})

    @override
    def build(self, width: int, norm: Norm, dropout: float, *, is_last: bool) -> "nn.Module":
        from model.sublayers import PreNorm

        return PreNorm(norm.build(width), dropout, is_last=is_last)

    def needs_result(self, dropout: float) -> bool:
        """Only dropout's backward pass needs the sub-layer's output; that of the sum does not."""
        return dropout > 0

    @override
    def exported(self, program: str, model: "ModelSection") -> dict[str, Any]:
        return {} if program == "huggingface" else {"pre_norm": True}


@component("residual", "post")
class Post(Residual):
    """norm(x + dropout(sublayer(x))): the order of the original paper."""

    packs_rows: ClassVar[bool] = True
    programs: ClassVar[frozenset[str]] = frozenset({"huggingface", "ctranslate2"})
    is_post_norm: ClassVar[bool] = True

    @override
    def build(self, width: int, norm: Norm, dropout: float, *, is_last: bool) -> "nn.Module":
        from model.sublayers import PostNorm

        return PostNorm(norm.build(width), dropout, is_last=is_last)

    @override
    def exported(self, program: str, model: "ModelSection") -> dict[str, Any]:
        return {} if program == "huggingface" else {"pre_norm": False}
