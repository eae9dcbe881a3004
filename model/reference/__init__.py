"""Five public teaching notebooks: what only they need, registered by name, and how their weights are taken over."""

from model.reference import initialisation, norms, residuals
from model.reference.names import NOTEBOOKS
from model.reference.weights import load

__all__ = ["NOTEBOOKS", "initialisation", "load", "norms", "residuals"]
