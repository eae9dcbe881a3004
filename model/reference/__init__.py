"""Five public teaching notebooks: their special modules, and the import of their weights."""

from model.reference.names import NOTEBOOKS
from model.reference.weights import default_num_heads, load

__all__ = ["NOTEBOOKS", "default_num_heads", "load"]
