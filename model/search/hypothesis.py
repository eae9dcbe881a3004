"""A translation and its score, and how scores of different lengths are compared."""

from dataclasses import dataclass


@dataclass(kw_only=True, slots=True, frozen=True)
class Hypothesis:
    """A translation: target ids without BOS and EOS, and what the model thinks of it."""

    ids: list[int]
    log_prob: float
    """Sum of the log-probabilities of its tokens, a forced prefix and EOS among them, in nats."""
    score: float
    """`log_prob` over `length_penalty`."""


def length_penalty(length: int, alpha: float, kind: str = "gnmt") -> float:
    """What the log-probability of `length` tokens (EOS counted) is divided by; alpha 0 divides by 1.

    gnmt: ((5 + length) / 6)^alpha, Wu et al. (2016), equation 14. mean: length^alpha; alpha 1 is the mean over tokens.
    """
    return float((length if kind == "mean" else (5 + length) / 6) ** alpha)
