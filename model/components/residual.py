"""Order of norm, dropout and residual connection: costs and limits. The equations: `model.residuals`."""

from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from configs.components import component
from model.parts import Norm, Residual

if TYPE_CHECKING:
    from torch import nn

    from configs.model import ModelSection


@component("residual", "pre")
class Pre(Residual):
    """x + dropout(sublayer(norm(x))) (Xiong et al., 2020): trains without a delicate warm-up."""

    packs_rows: ClassVar[bool] = True
    programs: ClassVar[frozenset[str]] = frozenset({"huggingface", "ctranslate2"})

    @override
    def build(self, width: int, norm: Norm, dropout: float, *, is_last: bool) -> "nn.Module":
        from model.residuals import PreNorm

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
        from model.residuals import PostNorm

        return PostNorm(norm.build(width), dropout, is_last=is_last)

    @override
    def exported(self, program: str, model: "ModelSection") -> dict[str, Any]:
        return {} if program == "huggingface" else {"pre_norm": False}
