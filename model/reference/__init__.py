"""Five public teaching notebooks: what only they need, and how their weights are taken over."""

from model.reference.names import NOTEBOOKS
from model.reference.weights import load, usual_heads

__all__ = ["NOTEBOOKS", "load", "usual_heads"]
