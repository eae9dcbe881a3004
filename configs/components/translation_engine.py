"""The base class of translation engines, which translate a corpus: a run, or its export."""

import dataclasses
from typing import Any

from configs.components.registry import Component


@dataclasses.dataclass(kw_only=True, frozen=True)
class TranslationEngine(Component):
    """Translates a corpus for `zeromt translate --part`. What it makes of a chunk depends on that chunk alone."""

    def prepare(self, candidates: int) -> Any:
        """Find the model, and check the settings; returns what has the members of
        `zeromt.translating.engines.zeromt.PreparedRun`.

        Args:
            candidates: translations that are wanted of each line.

        Raises:
            UserError: a field is wrong, or a model is missing.
        """
        raise NotImplementedError
