"""Five public teaching notebooks: their special modules, and the import of their weights."""

from model.reference.weights import NOTEBOOKS, default_num_heads, load

__all__ = ["NOTEBOOKS", "default_num_heads", "load"]
