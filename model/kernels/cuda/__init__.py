"""GPU kernels. Each also has a plain implementation, so that everything here runs on a CPU too."""

from torch import nn

from model.attention import MultiHeadAttention
from model.kernels.cuda.attention import CudaAttention
from model.kernels.cuda.dropout import CudaDropout
from model.kernels.cuda.loss import CUDA_STEPS
from model.kernels.cuda.passes import (
    CudaDecoderLayer,
    CudaEncoderLayer,
    CudaObjective,
    CudaStack,
    CudaTransformer,
)
from model.kernels.cuda.residuals import CudaPostNorm, CudaPreNorm, link, link_layers, neighbours_of
from model.layout import Current, SideName
from model.loss import OutputLayer
from model.sublayers import Dropout, PostNorm, PreNorm
from model.transformer import DecoderLayer, EncoderLayer, Objective, Stack, Transformer

__all__ = ["use"]

FASTER: dict[type[nn.Module], type[nn.Module]] = {
    DecoderLayer: CudaDecoderLayer,
    Dropout: CudaDropout,
    EncoderLayer: CudaEncoderLayer,
    MultiHeadAttention: CudaAttention,
    Objective: CudaObjective,
    PostNorm: CudaPostNorm,
    PreNorm: CudaPreNorm,
    Stack: CudaStack,
    Transformer: CudaTransformer,
}


def use(module: nn.Module) -> None:
    """Give the parts of a module the classes here, and the attributes that these have beyond the plain ones."""
    current, site = Current(), 0
    for name, part in module.named_modules():
        if type(part) is OutputLayer:
            part.steps = CUDA_STEPS
        if type(part) not in FASTER:
            continue
        part.__class__ = FASTER[type(part)]
        path = name.split(".")
        side: SideName = "source" if {"encoder", "source_embedding"} & set(path) else "target"
        part.current = current
        if isinstance(part, CudaAttention):
            part.name = name
            part.queries_side, part.memory_side = side, "source" if path[-1] == "cross_attention" else side
        elif isinstance(part, CudaDropout):
            part.side, part.site = side, site
            site += 1
        elif isinstance(part, (CudaPostNorm, CudaPreNorm)):
            part.neighbours = neighbours_of(part)
    for part in module.modules():
        if isinstance(part, CudaAttention) and isinstance(part.dropout, CudaDropout):
            part.drops = part.dropout.site, part.dropout.p
        if isinstance(part, (EncoderLayer, DecoderLayer)):
            link(part)
        elif isinstance(part, CudaTransformer):
            part.plan()
    for part in module.modules():
        if isinstance(part, CudaStack) and not part.is_checkpointed:  # layers that are recomputed stand alone
            link_layers(part.layers, part.norm)
