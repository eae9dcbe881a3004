"""The modifier of case."""

from typing import Literal

from typing_extensions import override

from configs.components import Draws, TextModifier, component
from data_pipeline.stream.modifiers.code import around_code


@component("modifier", "upper_case")
class UpperCase(TextModifier):
    """Both sides in capitals, but for markup, placeholders and addresses."""

    dotted_i: Literal["none", "source", "target", "both"] = "none"
    """Sides in Turkish or Azerbaijani: the capital of i is İ there."""

    @override
    def change(self, source: str, target: str, draws: Draws) -> tuple[str, str]:
        return (
            around_code(source, lambda text: _capitals(text, self.dotted_i in ("source", "both"))),
            around_code(target, lambda text: _capitals(text, self.dotted_i in ("target", "both"))),
        )


def _capitals(text: str, is_dotted: bool) -> str:
    return (text.replace("i", "İ") if is_dotted else text).upper()
