"""What draws the pieces of a translation that is sampled."""

import dataclasses
from typing import Any

from configs.components.registry import Component


@dataclasses.dataclass(kw_only=True, frozen=True)
class Sampler(Component):
    """What the next piece is drawn from. The draw itself, and its random numbers, are the search's."""

    def candidates(self, log_p_NV: Any) -> tuple[Any, Any]:
        """What may be drawn for each row.

        Args:
            log_p_NV: log-probabilities of the vocabulary, a tensor in fp32; not to be changed. What may not come next,
                as all but EOS at the greatest length, has -1e30: it is to have no probability.

        Returns:
            Tensors: probabilities (N, C), which need not sum to 1, and their tokens (N, C), the most probable first.
        """
        raise NotImplementedError

    def exported(self, program: str) -> dict[str, Any] | None:
        """What another program draws alike by, option by option; None where it cannot.

        Args:
            program: huggingface (`generate`) or ctranslate2 (`translate_batch`).
        """
        return None
