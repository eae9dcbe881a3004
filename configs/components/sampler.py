"""The base class of samplers, for translations drawn at random."""

import dataclasses
from typing import Any

from configs.components.registry import Component


@dataclasses.dataclass(kw_only=True, frozen=True)
class Sampler(Component):
    """Gives the distribution of the next piece. The search makes the random draw itself."""

    def candidates(self, log_p_NV: Any) -> tuple[Any, Any]:
        """The candidates of each row.

        Args:
            log_p_NV: log-probabilities of the vocabulary, a tensor in fp32, which must not be changed. Forbidden
                pieces, such as all except EOS at the maximum length, have -1e30 and must get probability 0.

        Returns:
            Tensors: probabilities (N, C), which need not sum to 1, and their tokens (N, C), the most probable first.
        """
        raise NotImplementedError

    def exported(self, program: str) -> dict[str, Any] | None:
        """Another program's options for the same sampling; None if it cannot do it.

        Args:
            program: huggingface (`generate`) or ctranslate2 (`translate_batch`).
        """
        return None
