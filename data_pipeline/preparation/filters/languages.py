"""Filters of text in the wrong script or language."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import override

from configs.components import Corpus, DroppingFilter, Find, component
from configs.data import Script
from configs.fields import PathText


@component("filter", "scripts")
class Scripts(DroppingFilter):
    """Rejects pairs with too small a fraction of a side's letters in given Unicode scripts (Annex 24)."""

    side: Literal["source", "target"]
    """The side to check."""
    scripts: Annotated[list[Script], Field(min_length=1)]
    """Allowed scripts, such as [Latin] or [Han, Hiragana, Katakana]."""
    min_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Minimum fraction of the side's letters in its scripts. A side without letters passes."""

    @override
    def report_name(self) -> str:
        return f"{self.side} script"

    @override
    def open(self, corpus: Corpus, place: str) -> Find:
        from data_pipeline.preparation.identification import script_filter

        find = script_filter(place, self.scripts, self.min_share)
        return lambda sources, targets: find(sources if self.side == "source" else targets)


@component("filter", "language_identification")
class LanguageIdentification(DroppingFilter):
    """Drops pairs with a side in another language (optional packages: zeromt[langid], zeromt[fasttext])."""

    min_probability: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Minimum probability at which a side counts as another language."""
    model: PathText = "py3langid"
    """py3langid, or the path of a fastText model, such as lid.176.bin (zeromt[fasttext])."""

    @override
    def report_name(self) -> str:
        return "language"

    @override
    def open(self, corpus: Corpus, place: str) -> Find:
        from data_pipeline.preparation.identification import language_filter

        return language_filter(place, corpus, self.min_probability, self.model)
