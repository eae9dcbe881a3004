"""What starts training processes, here and on clusters, and what watches them. Does not import torch."""
