"""The weights of the training loop by hand, in our model."""

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
"""Logits of the plain loop's model and of ours with its weights differ by less."""
BLOCKS = {
    "encoder": ("self_attention", "feed_forward"),
    "decoder": ("self_attention", "cross_attention", "feed_forward"),
}
"""Of a layer, in the order of the plain loop's norms."""
PROJECTIONS = {
    ("self_attention", "query"): ("query", "key", "value"),
    ("cross_attention", "query"): ("query",),
    ("cross_attention", "memory"): ("key", "value"),
    ("self_attention", "out"): ("output",),
    ("cross_attention", "out"): ("output",),
}
"""What each product of the plain loop's attention holds, in order."""


@torch.no_grad()
def load_plain(path: Path, model: Transformer, work: Work) -> None:
    """Fill the model from a file of the plain loop's, and see that it computes the same.

    Raises:
        UserError: its logits differ from the plain loop's.
    """
    weights = torch.load(path)
    model.load_state_dict(our_weights(weights))
    theirs = plain_model.Model(work.sizes).eval()
    theirs.load_state_dict(weights, strict=False)  # sinusoids are no weights
    dice = torch.Generator().manual_seed(1)
    source, target = (torch.randint(4, work.sizes["vocab"], (7, length), generator=dice) for length in (23, 29))
    source[:3, 17:] = plain_model.PAD
    hidden = theirs.decode(target, *theirs.encode(source))
    difference = (model.output(model(source, target)) - F.linear(hidden, theirs.embedding.weight)).abs().max()
    if not difference < TOLERANCE:
        raise UserError(
            f"{path.name}: logits in our model differ by {difference:.1e}; allowed is less than {TOLERANCE}"
        )


def our_weights(theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The plain loop's weights by our names, its fused products cut into queries, keys and values."""
    tied = ("source_embedding.tokens.weight", "target_embedding.tokens.weight", "output.weight")
    found = dict.fromkeys(tied, theirs["embedding.weight"])
    for name, tensor in theirs.items():
        match name.split("."):
            case ["norms", number, end]:
                found[f"{list(BLOCKS)[int(number)]}.norm.{end}"] = tensor
            case [stack, layer, "norms", number, end]:
                found[f"{stack}.layers.{layer}.{BLOCKS[stack][int(number)]}_residual.norm.{end}"] = tensor
            case [stack, layer, "attentions", number, product, end]:
                block = BLOCKS[stack][int(number)]
                parts = PROJECTIONS[block, product]
                for part, matrix in zip(parts, tensor.chunk(len(parts)), strict=True):
                    found[f"{stack}.layers.{layer}.{block}.{part}.{end}"] = matrix
            case [stack, layer, ("inner" | "outer") as part, end]:
                found[f"{stack}.layers.{layer}.feed_forward.{part}.{end}"] = tensor
    return found
