"""The five reference systems as plain modules under their own names: what `model.reference.load` is held against."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.model.notebooks.annotated import AnnotatedTransformer
from tests.model.notebooks.blocks import BlockTransformer
from tests.model.notebooks.gelu_dk import NarrowTransformer
from tests.model.notebooks.learned_pos import LearnedTransformer
from tests.model.notebooks.parts import Sizes

BUILDERS: dict[str, Callable[[Sizes], nn.Module]] = {
    "notebook_postnorm_es": lambda sizes: BlockTransformer(sizes, is_pre=False),
    "notebook_prenorm_viz": lambda sizes: BlockTransformer(sizes, is_pre=True),
    "notebook_annotated_fr": AnnotatedTransformer,
    "notebook_gelu_dk": NarrowTransformer,
    "notebook_learned_pos": LearnedTransformer,
}


def tiny_notebook(preset: str, *, seed: int = 1, **changes: int) -> nn.Module:
    """A notebook's model with some thousand weights, none of them left at 0 or 1."""
    sizes = {
        "width": 12,
        "heads": 3,
        "head_width": 6,
        "inner": 48 if preset in ("notebook_gelu_dk", "notebook_learned_pos") else 20,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "source_vocab": 17,
        "target_vocab": 13,
        "length": 11,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BUILDERS[preset]({**sizes, **changes})
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn(parameter.shape))
    return model.eval()


def log_probabilities(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
    """What a notebook gives, as log-probabilities: three give them themselves, and of them it is the identity."""
    return F.log_softmax(model(source, target), dim=-1)
