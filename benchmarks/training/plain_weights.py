"""Loads the plain loop's weights into our model."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.training import plain_model
from benchmarks.training.trainers import Work
from configs import UserError
from model import Transformer

TOLERANCE = 1e-4
"""Largest allowed difference between the logits of the plain model and of ours with the same weights."""
BLOCKS = {
    "encoder": ("self_attention", "feed_forward"),
    "decoder": ("self_attention", "cross_attention", "feed_forward"),
}
"""Our names of a layer's sub-layers, in the order of the plain model's norms."""
PROJECTIONS = {
    ("self_attention", "query"): ("query", "key", "value"),
    ("cross_attention", "query"): ("query",),
    ("cross_attention", "memory"): ("key", "value"),
    ("self_attention", "out"): ("output",),
    ("cross_attention", "out"): ("output",),
}
"""Our projections in each matrix of the plain model's attention, in order."""


@torch.no_grad()
def load_plain(path: Path, model: Transformer, work: Work) -> None:
    """Load a weights file of the plain loop into our model, and check that both compute the same logits.

    Raises:
        UserError: the logits differ.
    """
    weights = torch.load(path)
    model.load_state_dict(our_weights(weights))
    theirs = plain_model.Model(work.sizes).eval()
    theirs.load_state_dict(weights, strict=False)  # the file has no sinusoids
    rng = torch.Generator().manual_seed(1)
    source, target = (torch.randint(4, work.sizes["vocab"], (7, length), generator=rng) for length in (23, 29))
    source[:3, 17:] = plain_model.PAD
    hidden = theirs.decode(target, *theirs.encode(source))
    difference = (model.output(model(source, target)) - F.linear(hidden, theirs.embedding.weight)).abs().max()
    if not difference < TOLERANCE:
        raise UserError(f"{path.name}: logits in our model differ by {difference:.1e}, at least {TOLERANCE}")


def our_weights(theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The plain model's weights under our names, with joined projections split."""
    tied = ("source_embedding.tokens.weight", "target_embedding.tokens.weight", "output.weight")
    found = dict.fromkeys(tied, theirs["embedding.weight"])
    for name, tensor in theirs.items():
        match name.split("."):
            case ["norms", number, end]:
                found[f"{list(BLOCKS)[int(number)]}.norm.{end}"] = tensor
            case [stack, layer, "norms", number, end]:
                found[f"{stack}.layers.{layer}.{BLOCKS[stack][int(number)]}_residual.norm.{end}"] = tensor
            case [stack, layer, "attentions", number, projection, end]:
                block = BLOCKS[stack][int(number)]
                parts = PROJECTIONS[block, projection]
                for part, matrix in zip(parts, tensor.chunk(len(parts)), strict=True):
                    found[f"{stack}.layers.{layer}.{block}.{part}.{end}"] = matrix
            case [stack, layer, ("inner" | "outer") as part, end]:
                found[f"{stack}.layers.{layer}.feed_forward.{part}.{end}"] = tensor
    return found
