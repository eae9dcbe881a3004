"""The command line, and what starts training processes. Does not import torch."""
