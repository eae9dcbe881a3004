"""The Transformer, its loss and its search. Knows nothing of files, ranks or DeepSpeed.

Shape suffixes used throughout: B batch (sentences), S source length, T target length, L any length, D model width,
H heads, K head width, V vocabulary, N rows of any kind (tokens, or sentences times beam).
"""

from model import reference
from model.objective import Objective, ObjectiveOutput
from model.search import Ensemble, Hypothesis, score, search
from model.transformer import AttentionWeights, SpecialIds, Transformer, build_transformer

__all__ = [
    "AttentionWeights",
    "Ensemble",
    "Hypothesis",
    "Objective",
    "ObjectiveOutput",
    "SpecialIds",
    "Transformer",
    "build_transformer",
    "reference",
    "score",
    "search",
]
