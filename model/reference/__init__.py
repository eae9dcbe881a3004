"""Five public teaching notebooks: what only they need, registered by name, and how their weights are taken over."""

from model.reference import initialisation, norms, residuals

__all__ = ["initialisation", "norms", "residuals"]
