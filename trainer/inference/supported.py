"""What other programs can take of a model."""

from collections.abc import Iterator

from configs import ModelSection
from configs.components.model import ModelPart

CTRANSLATE2 = "ctranslate2"
"""The name of its format in the model's parts."""


def parts(section: ModelSection) -> Iterator[ModelPart]:
    """The parts of a model that an export must know how to write."""
    yield from (section.attention, section.feed_forward, section.positions, section.norm, section.residual)


def part_problems(section: ModelSection, program: str) -> Iterator[str]:
    """Why a program does not support the parts, one line each."""
    for part in parts(section):
        yield from (f"model.{line}" for line in part.export_problems(program, section))


def ctranslate2_problems(section: ModelSection) -> Iterator[str]:
    """The options that CTranslate2 does not support, one line each."""
    yield from part_problems(section, CTRANSLATE2)
    if section.has_final_norm and section.residual.is_post_norm:
        yield f"model.final_norm: true with {section.residual.kind}; allowed is false"
