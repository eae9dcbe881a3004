"""Position-wise feed-forward layers: fields, costs and limits. The equations: `model.sublayers`."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from configs.components import component
from configs.fields import Probability, Size
from model.parts import FeedForward, Storage

if TYPE_CHECKING:
    from torch import nn

    from configs.model import ModelSection


@dataclasses.dataclass(kw_only=True, frozen=True)
class TwoLayers(FeedForward):
    """Base of all kinds here: a wide inner layer and an outer layer."""

    activation: ClassVar[str] = ""
    """Its name in `torch.nn.functional`; without one there is none."""
    num_inner_tensors: ClassVar[int] = 2
    """Tensors of the inner width kept for the backward pass: inputs of the activation, the outer layer and the gate."""
    inner_layers: ClassVar[tuple[str, ...]] = ("inner",)

    d_ff: Size = 2048
    """Width of the inner layer."""
    bias: bool = True
    """Whether the projections have a bias."""
    dropout: Probability = 0.0
    """Dropout probability after the activation."""

    @override
    def build(self, width: int) -> "nn.Module":
        from torch.nn import functional as F

        from model.sublayers import FeedForward, GatedFeedForward, unchanged

        made = GatedFeedForward if "gate" in self.inner_layers else FeedForward
        activation = getattr(F, self.activation, unchanged)
        return made(width, self.d_ff, activation, self.dropout, bias=self.bias)

    @override
    def flops(self, width: int, tokens: int) -> int:
        return 2 * (len(self.inner_layers) + 1) * width * self.d_ff * tokens

    @override
    def last_flops(self, width: int, tokens: int) -> int:
        return 2 * width * self.d_ff * tokens

    @override
    def activation_bytes(self, width: int, tokens: int, storage: Storage) -> int:
        inner = tokens * self.d_ff
        return self.num_inner_tensors * inner * storage.element + storage.masks(inner, self.dropout)

    @override
    def widest(self, width: int) -> int:
        return self.d_ff

    @override
    def exported(self, program: str, model: "ModelSection") -> dict[str, Any]:
        name = self.program_names[program]
        if program == "huggingface":
            sizes = dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), self.d_ff)
            return {**sizes, "activation_function": name, "activation_dropout": self.dropout}
        return {"activation": name, "ffn_glu": "gate" in self.inner_layers}


@component("feed_forward", "relu")
class Relu(TwoLayers):
    """linear, ReLU, dropout, linear (Vaswani et al., 2017, equation 2)."""

    activation: ClassVar[str] = "relu"
    packs_rows: ClassVar[bool] = True
    programs: ClassVar[frozenset[str]] = frozenset({"huggingface", "ctranslate2"})
    program_names: ClassVar[Mapping[str, str]] = {"huggingface": "relu", "ctranslate2": "RELU"}
    num_inner_tensors: ClassVar[int] = 1


@component("feed_forward", "gelu")
class Gelu(TwoLayers):
    """As relu, with GELU (Hendrycks and Gimpel, 2016)."""

    activation: ClassVar[str] = "gelu"
    packs_rows: ClassVar[bool] = True
    programs: ClassVar[frozenset[str]] = frozenset({"huggingface", "ctranslate2"})
    program_names: ClassVar[Mapping[str, str]] = {"huggingface": "gelu", "ctranslate2": "GELU"}


@component("feed_forward", "silu")
class Silu(TwoLayers):
    """As relu, with SiLU (Elfwing et al., 2018)."""

    activation: ClassVar[str] = "silu"
    packs_rows: ClassVar[bool] = True
    programs: ClassVar[frozenset[str]] = frozenset({"huggingface", "ctranslate2"})
    program_names: ClassVar[Mapping[str, str]] = {"huggingface": "silu", "ctranslate2": "SWISH"}


@component("feed_forward", "none")
class NoActivation(TwoLayers):
    """Two linear layers with dropout between them and no activation, as in one of the reference systems."""

    packs_rows: ClassVar[bool] = True
    programs: ClassVar[frozenset[str]] = frozenset({"huggingface"})
    program_names: ClassVar[Mapping[str, str]] = {"huggingface": "linear"}
    num_inner_tensors: ClassVar[int] = 1


@component("feed_forward", "swiglu")
class SwiGlu(TwoLayers):
    """The inner layer is gated by a second one through SiLU (Shazeer, 2020)."""

    activation: ClassVar[str] = "silu"
    packs_rows: ClassVar[bool] = True
    programs: ClassVar[frozenset[str]] = frozenset({"ctranslate2"})
    program_names: ClassVar[Mapping[str, str]] = {"ctranslate2": "SWISH"}
    inner_layers: ClassVar[tuple[str, ...]] = ("inner", "gate")
    num_inner_tensors: ClassVar[int] = 4
