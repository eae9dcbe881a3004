"""Positions: fields, costs and limits. The equations: `model.positions`."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from pydantic import Field

from configs.components import component
from configs.components.model import NamedShape, Positions
from configs.fields import PositiveFloat

if TYPE_CHECKING:
    from torch import Tensor, nn

    from configs.model import ModelSection
    from model.positions import LearnedPositions, SinusoidalPositions

Offset = Annotated[int, Field(ge=0, le=1 << 24)]


@component("positions", "sinusoidal")
class Sinusoidal(Positions):
    """Sines and cosines of geometrically growing wavelengths, added (Vaswani et al., 2017, section 3.5)."""

    programs: ClassVar[frozenset[str]] = frozenset({"huggingface", "ctranslate2"})

    base: PositiveFloat = 10000.0
    """Of the wavelengths."""
    layout: Literal["interleaved", "halves", "tensor2tensor"] = "interleaved"
    """Sine and cosine by turns (Vaswani et al., 2017); all sines, then all cosines (Marian); or so, with wavelengths
    spread over one place less (tensor2tensor, fairseq, M2M100)."""
    offset: Offset = 0
    """Number of the first position: 2 in fairseq and its descendants."""

    def problems_at(self, width: int, head_width: int | None) -> Iterator[str]:
        """See Positions."""
        if width % 2:
            yield f"d_model: {width} is odd; allowed with sinusoidal positions is an even number"

    def build(self, num_positions: int, width: int) -> "nn.Module":
        """See Positions."""
        from model.positions import SinusoidalPositions

        return SinusoidalPositions(num_positions, width, base=self.base, layout=self.layout, offset=self.offset)

    def export_problems(self, program: str, model: "ModelSection") -> Iterator[str]:
        """See ModelPart."""
        if program == "huggingface" and model.residual.is_post_norm and not self.has_own_table(program):
            yield (
                f"positions: layout {self.layout}, base {self.base:g}, offset {self.offset} with post-norm; allowed is "
                "the layout interleaved or halves, base 10000, offset 0"
            )

    def exported(self, program: str, model: "ModelSection") -> dict[str, Any]:
        """See ModelPart."""
        return {}

    def table(self, module: "nn.Module", num_positions: int, width: int) -> "Tensor":
        """See Positions."""
        return cast("SinusoidalPositions", module).table.float()

    def has_own_table(self, program: str) -> bool:
        """Marian and Pegasus of Transformers compute sinusoids by themselves."""
        is_usual = self.layout in ("interleaved", "halves") and self.base == 10000.0 and self.offset == 0
        return program == "huggingface" and is_usual

    def sines_first(self, width: int) -> Sequence[int] | None:
        """See Positions."""
        return [*range(0, width, 2), *range(1, width, 2)] if self.layout == "interleaved" else None


@component("positions", "learned")
class Learned(Positions):
    """One trained vector for each position, added (Gehring et al., 2017)."""

    programs: ClassVar[frozenset[str]] = frozenset({"huggingface", "ctranslate2"})

    offset: Offset = 0
    """Rows of the table before the first position's: 2 in fairseq and its descendants."""

    def build(self, num_positions: int, width: int) -> "nn.Module":
        """See Positions."""
        from model.positions import LearnedPositions

        return LearnedPositions(num_positions, width, offset=self.offset)

    def parameters(self, num_positions: int, width: int) -> Iterator[NamedShape]:
        """See Positions."""
        yield "weight", (self.offset + num_positions, width)

    def export_problems(self, program: str, model: "ModelSection") -> Iterator[str]:
        """See ModelPart."""
        yield from _only_sinusoids(self, program, model)

    def exported(self, program: str, model: "ModelSection") -> dict[str, Any]:
        """See ModelPart."""
        return {}

    def table(self, module: "nn.Module", num_positions: int, width: int) -> "Tensor":
        """See Positions."""
        return cast("LearnedPositions", module).weight.detach()[self.offset :]


@component("positions", "rotary")
class Rotary(Positions):
    """Queries and keys of self-attention are turned, so that products depend on the distance (Su et al., 2021)."""

    programs: ClassVar[frozenset[str]] = frozenset({"ctranslate2"})

    base: PositiveFloat = 10000.0
    """Of the wavelengths."""

    def problems_at(self, width: int, head_width: int | None) -> Iterator[str]:
        """See Positions."""
        if head_width is None:
            yield "positions.kind: 'rotary' with an attention that takes no rotation; allowed is another"
        elif head_width % 2:
            yield f"attention.head_width: {head_width} is odd; allowed with rotary positions is an even number"

    def build(self, num_positions: int, width: int) -> "nn.Module":
        """See Positions."""
        from model.positions import NoPositions

        return NoPositions(num_positions)

    def build_rotation(self, num_positions: int, head_width: int) -> "nn.Module":
        """See Positions."""
        from model.positions import Rotation

        return Rotation(num_positions, head_width, base=self.base)

    def exported(self, program: str, model: "ModelSection") -> dict[str, Any]:
        """See ModelPart."""
        return {"rotary_dim": 0, "rotary_interleave": True, "rotary_base": self.base}


@component("positions", "none")
class NoPositions(Positions):
    """Nothing says where a token stands, but what decoders see of the past."""

    programs: ClassVar[frozenset[str]] = frozenset({"huggingface", "ctranslate2"})

    def build(self, num_positions: int, width: int) -> "nn.Module":
        """See Positions."""
        from model.positions import NoPositions

        return NoPositions(num_positions)

    def export_problems(self, program: str, model: "ModelSection") -> Iterator[str]:
        """See ModelPart."""
        yield from _only_sinusoids(self, program, model)

    def exported(self, program: str, model: "ModelSection") -> dict[str, Any]:
        """See ModelPart."""
        return {}

    def table(self, module: "nn.Module", num_positions: int, width: int) -> "Tensor":
        """Zeros: other programs always add a table."""
        import torch

        return torch.zeros(num_positions, width)


def _only_sinusoids(positions: Positions, program: str, model: "ModelSection") -> Iterator[str]:
    """Marian, which is Transformers' post-norm architecture, computes sinusoids whatever its weights are."""
    if program == "huggingface" and model.residual.is_post_norm:
        yield f"positions.kind: {positions.kind!r} with post-norm; allowed is sinusoidal"
