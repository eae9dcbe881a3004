"""A translation with its score, and the length penalty."""

from dataclasses import dataclass


@dataclass(kw_only=True, slots=True, frozen=True)
class Hypothesis:
    """A translation: target ids without BOS and EOS, and their scores."""

    ids: list[int]
    log_prob: float
    """Sum of the tokens' log-probabilities in nats, including a forced prefix and EOS."""
    score: float
    """`log_prob` divided by `length_penalty`."""


def length_penalty(length: int, alpha: float, kind: str = "gnmt") -> float:
    """The divisor for the log-probability of `length` tokens, EOS included; 1 with alpha 0.

    gnmt: ((5 + length) / 6)^alpha (Wu et al., 2016, equation 14). mean: length^alpha; alpha 1 is the mean over tokens.
    """
    return float((length if kind == "mean" else (5 + length) / 6) ** alpha)
