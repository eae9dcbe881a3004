"""Sampling from the most probable pieces."""

import math
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from typing_extensions import override

from configs.components import component
from configs.fields import Count, PositiveFloat
from model.parts import Sampler

if TYPE_CHECKING:
    from torch import Tensor


@component("sampler", "truncated")
class Truncated(Sampler):
    """Top-k sampling, then top-p (nucleus) sampling of the remaining pieces, and epsilon sampling."""

    temperature: PositiveFloat = 1.0
    """Divides the log-probabilities, before top-k and top-p; below 1 sharpens the distribution, above 1 flattens it."""
    top_k: Count = 0
    """Sample from the k most probable pieces only (Fan et al., 2018); 0 keeps all."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """After top-k and normalisation, sample from the fewest pieces whose probabilities sum to at least this (Holtzman
    et al., 2020)."""

    epsilon: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Of these, sample only pieces whose probability, after the temperature and among all pieces, is at least this
    (epsilon sampling; Hewitt et al., 2022); the most probable one always is."""

    @override
    def candidates(self, log_p_NV: "Tensor") -> tuple["Tensor", "Tensor"]:
        count = min(self.top_k, log_p_NV.shape[-1]) if self.top_k else log_p_NV.shape[-1]
        best_Nc, token_Nc = (log_p_NV / self.temperature).topk(count, dim=-1)
        p_Nc = best_Nc.softmax(-1)
        if self.top_p < 1:
            before_Nc = p_Nc.cumsum(-1) - p_Nc
            p_Nc = p_Nc.masked_fill(before_Nc >= self.top_p, 0.0)
        if self.epsilon:
            whole_N1 = (log_p_NV / self.temperature).logsumexp(-1, keepdim=True)
            is_unlikely = best_Nc - whole_N1 < math.log(self.epsilon)
            is_unlikely[:, 0] = False
            p_Nc = p_Nc.masked_fill(is_unlikely, 0.0)
        return p_Nc, token_Nc

    @override
    def exported(self, program: str) -> dict[str, Any] | None:
        if program == "huggingface":
            options = {"do_sample": True, "temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}
            return {**options, "epsilon_cutoff": self.epsilon} if self.epsilon else options
        if self.epsilon:
            return None
        return {
            "sampling_topk": self.top_k,
            "sampling_topp": self.top_p,
            "sampling_temperature": self.temperature,
        }
