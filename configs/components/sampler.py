"""The base class of samplers, which draw translations at random."""

import dataclasses
from typing import Any

from configs.components.registry import Component


@dataclasses.dataclass(kw_only=True, frozen=True)
class Sampler(Component):
    """Computes the distribution that the next piece is drawn from. The search draws from it."""

    def candidates(self, log_p_NV: Any) -> tuple[Any, Any]:
        """The candidates for the next piece of each row.

        Args:
            log_p_NV: log-probabilities of the vocabulary, an fp32 tensor, which must not be modified. Forbidden pieces,
                such as all except EOS at the maximum length, have -1e30 and must get probability 0.

        Returns:
            Two tensors (N, C): probabilities, most probable first, which need not sum to 1, and the pieces' ids.
        """
        raise NotImplementedError

    def exported(self, program: str) -> dict[str, Any] | None:
        """Another program's options for the same sampling; None if the program does not support it.

        Args:
            program: `huggingface` (options of `generate`) or `ctranslate2` (options of `translate_batch`).
        """
        return None
