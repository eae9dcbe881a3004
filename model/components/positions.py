"""Positions: fields, costs and limits. The equations: `model.positions`."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from pydantic import Field
from typing_extensions import override

from configs.components import component
from configs.fields import PositiveFloat
from model.parts import Positions

if TYPE_CHECKING:
    from torch import Tensor, nn

    from configs.model import ModelSection
    from model.positions import LearnedPositions, SinusoidalPositions

Offset = Annotated[int, Field(ge=0, le=1 << 24)]


@component("positions", "sinusoidal")
class Sinusoidal(Positions):
    """Adds sines and cosines of geometrically growing wavelengths (Vaswani et al., 2017, section 3.5)."""

    packs_rows: ClassVar[bool] = True
    programs: ClassVar[frozenset[str]] = frozenset({"huggingface", "ctranslate2"})

    base: PositiveFloat = 10000.0
    """Base of the geometric progression of wavelengths."""
    layout: Literal["interleaved", "halves", "tensor2tensor"] = "interleaved"
    """interleaved: sine, cosine, sine, ... (Vaswani et al., 2017). halves: all sines, then all cosines
    (Transformers' Marian). tensor2tensor: halves with the frequencies of tensor2tensor, Marian, fairseq and M2M100,
    spread over one step less."""
    offset: Offset = 0
    """Number of the first position; 2 in fairseq and its descendants."""

    @override
    def problems_at(self, width: int, head_width: int | None) -> Iterator[str]:
        if width % 2:
            yield f"d_model: {width} is odd; sinusoidal positions need an even number"

    @override
    def build(self, num_positions: int, width: int) -> "nn.Module":
        from model.positions import SinusoidalPositions

        return SinusoidalPositions(num_positions, width, base=self.base, layout=self.layout, offset=self.offset)

    @override
    def export_problems(self, program: str, model: "ModelSection") -> Iterator[str]:
        yield from super().export_problems(program, model)
        if program == "huggingface" and model.residual.is_post_norm and not self.has_own_table(program):
            yield (
                f"positions: layout {self.layout}, base {self.base:g}, offset {self.offset} with post-norm cannot be "
                "exported; use the layout interleaved or halves, base 10000 and offset 0"
            )

    @override
    def exported(self, program: str, model: "ModelSection") -> dict[str, Any]:
        return {}

    @override
    def table(self, module: "nn.Module", num_positions: int, width: int) -> "Tensor":
        return cast("SinusoidalPositions", module).table.float()

    def has_own_table(self, program: str) -> bool:
        """Whether the program computes the same table itself, as Marian and Pegasus in Transformers do."""
        is_usual = self.layout in ("interleaved", "halves") and self.base == 10000.0 and self.offset == 0
        return program == "huggingface" and is_usual

    @override
    def sines_first(self, width: int) -> Sequence[int] | None:
        return [*range(0, width, 2), *range(1, width, 2)] if self.layout == "interleaved" else None


@component("positions", "learned")
class Learned(Positions):
    """Adds a trained vector for each position (Gehring et al., 2017)."""

    packs_rows: ClassVar[bool] = True
    programs: ClassVar[frozenset[str]] = frozenset({"huggingface", "ctranslate2"})

    offset: Offset = 0
    """Unused rows of the table before the first position; 2 in fairseq and its descendants."""

    @override
    def build(self, num_positions: int, width: int) -> "nn.Module":
        from model.positions import LearnedPositions

        return LearnedPositions(num_positions, width, offset=self.offset)

    @override
    def export_problems(self, program: str, model: "ModelSection") -> Iterator[str]:
        yield from super().export_problems(program, model)
        yield from _only_sinusoids(self, program, model)

    @override
    def exported(self, program: str, model: "ModelSection") -> dict[str, Any]:
        return {}

    @override
    def table(self, module: "nn.Module", num_positions: int, width: int) -> "Tensor":
        return cast("LearnedPositions", module).weight.detach()[self.offset :]


@component("positions", "rotary")
class Rotary(Positions):
    """Rotates queries and keys of self-attention, so that scores depend on relative position (Su et al., 2021)."""

    packs_rows: ClassVar[bool] = True
    programs: ClassVar[frozenset[str]] = frozenset({"ctranslate2"})

    base: PositiveFloat = 10000.0
    """Base of the geometric progression of wavelengths."""

    @override
    def problems_at(self, width: int, head_width: int | None) -> Iterator[str]:
        if head_width is None:
            yield "positions.kind: 'rotary' needs an attention that rotates; choose other positions or attention"
        elif head_width % 2:
            yield f"attention.head_width: {head_width} is odd; rotary positions need an even number"

    @override
    def build(self, num_positions: int, width: int) -> "nn.Module":
        from model.positions import NoPositions

        return NoPositions(num_positions)

    @override
    def build_rotation(self, num_positions: int, head_width: int) -> "nn.Module":
        from model.positions import Rotation

        return Rotation(num_positions, head_width, base=self.base)

    @override
    def exported(self, program: str, model: "ModelSection") -> dict[str, Any]:
        return {"rotary_dim": 0, "rotary_interleave": True, "rotary_base": self.base}


@component("positions", "none")
class NoPositions(Positions):
    """No positions: only the causal mask of the decoder tells tokens apart by position."""

    packs_rows: ClassVar[bool] = True
    programs: ClassVar[frozenset[str]] = frozenset({"huggingface", "ctranslate2"})

    @override
    def build(self, num_positions: int, width: int) -> "nn.Module":
        from model.positions import NoPositions

        return NoPositions(num_positions)

    @override
    def export_problems(self, program: str, model: "ModelSection") -> Iterator[str]:
        yield from super().export_problems(program, model)
        yield from _only_sinusoids(self, program, model)

    @override
    def exported(self, program: str, model: "ModelSection") -> dict[str, Any]:
        return {}

    def table(self, module: "nn.Module", num_positions: int, width: int) -> "Tensor":
        """Zeros, because other programs always add a table."""
        import torch

        return torch.zeros(num_positions, width)


def _only_sinusoids(positions: Positions, program: str, model: "ModelSection") -> Iterator[str]:
    """An error for the post-norm export: Marian in Transformers always computes sinusoids, whatever the weights."""
    if program == "huggingface" and model.residual.is_post_norm:
        yield f"positions.kind: {positions.kind!r} with post-norm cannot be exported; it must be sinusoidal"
