"""A part of a model of each family, as somebody else would write it."""

from tests.configs.plugins.case import Case

ATTENTION = '''
from configs.components import component
from model.parts import Attention
from configs.fields import PositiveFloat


@component("attention", "their_single_head")
class SingleHead(Attention):
    """One head as wide as the model."""

    sharpness: PositiveFloat = 1.0

    def build(self, width, rotation):
        import torch
        from torch import nn
        from torch.nn import functional as F

        class SingleHeadModule(nn.Module):
            def __init__(self, sharpness):
                super().__init__()
                self.scale = sharpness * width**-0.5
                self.query, self.memory, self.output = (nn.Linear(width, n * width) for n in (1, 2, 1))

            def forward(self, queries, memory, bias=None, *, is_causal=False, cache=None, memory_is_fixed=False):
                if cache is not None and memory_is_fixed and cache.key is not None:
                    keys, values = cache.key, cache.value
                else:
                    keys, values = self.memory(memory).chunk(2, -1)
                    keys, values = keys[:, None], values[:, None]
                    if cache is not None:
                        keys, values = cache.append(keys, values)
                attended = F.scaled_dot_product_attention(
                    self.query(queries)[:, None], keys, values, bias, is_causal=is_causal, scale=self.scale
                )
                return self.output(attended[:, 0])

        return SingleHeadModule(self.sharpness)

    def flops(self, width, *, query_tokens, memory_tokens, memory_length):
        return 4 * width * (width * (query_tokens + memory_tokens) + query_tokens * memory_length)

    def activation_bytes(self, width, *, rows, length, memory_length, storage):
        return 2 * rows * (length + memory_length) * width * storage.element + rows * length * memory_length * 4
'''
FEED_FORWARD = '''
from configs.components import component
from model.parts import FeedForward
from configs.fields import Size


@component("feed_forward", "their_squared_relu")
class SquaredRelu(FeedForward):
    """linear, the square of ReLU (So et al., 2021), linear."""

    d_ff: Size = 2048

    def build(self, width):
        from torch import nn

        class SquaredReluModule(nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner, self.outer = nn.Linear(width, inner), nn.Linear(inner, width)

            def forward(self, x):
                return self.outer(self.inner(x).relu().square())

        return SquaredReluModule(self.d_ff)

    def flops(self, width, tokens):
        return 4 * width * self.d_ff * tokens

    def activation_bytes(self, width, tokens, storage):
        return 2 * tokens * self.d_ff * storage.element
'''
INITIALISATION = '''
from configs.components import component
from model.parts import Initialisation
from configs.fields import PositiveFloat


@component("initialisation", "their_small")
class Small(Initialisation):
    """Gaussians of one width."""

    std: PositiveFloat = 0.02

    def fill(self, model, width):
        from torch import nn

        for parameter in model.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=self.std)
'''
LOSS = '''
from configs.components import component
from model.parts import Loss
from configs.fields import NonNegativeFloat


@component("loss", "their_shifted")
class Shifted(Loss):
    """Cross-entropy, and a constant for each token."""

    shift: NonNegativeFloat = 1.0

    def build(self):
        from torch.nn import functional as F

        def loss(hidden, weight, bias, targets, *, padding_id):
            logits = F.linear(hidden, weight, bias).float()
            nll = F.cross_entropy(logits, targets, ignore_index=padding_id, reduction="sum")
            return nll + self.shift * (targets != padding_id).sum(), nll.detach()

        return loss
'''
NORM = '''
from configs.components import component
from model.parts import Norm
from configs.fields import PositiveFloat


@component("norm", "their_mean_square")
class MeanSquare(Norm):
    """Division by the root of the mean square, and nothing to learn."""

    eps: PositiveFloat = 1e-5

    def build(self, width):
        from torch import nn

        class MeanSquareModule(nn.Module):
            def __init__(self, eps):
                super().__init__()
                self.eps = eps

            def forward(self, x):
                return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt()

        return MeanSquareModule(self.eps)

    def activation_bytes(self, width, tokens, storage):
        return 2 * tokens * width * storage.element
'''
POSITIONS = '''
from configs.components import component
from model.parts import Positions
from configs.fields import Positive


@component("positions", "their_cyclic")
class Cyclic(Positions):
    """One trained vector for each of a few positions, over and over."""

    period: Positive = 8

    def build(self, num_positions, width):
        import torch
        from torch import nn

        from model.positions import check_length

        class CyclicModule(nn.Module):
            def __init__(self, period):
                super().__init__()
                self.table = nn.Parameter(torch.zeros(period, width))

            def forward(self, x, start=0):
                end = start + x.shape[1]
                check_length(start, x.shape[1], num_positions)
                return x + self.table[torch.arange(start, end, device=x.device) % len(self.table)]

        return CyclicModule(self.period)


'''
RESIDUAL = '''
from configs.components import component
from model.parts import Residual
from configs.fields import NonNegativeFloat


@component("residual", "their_gated")
class Gated(Residual):
    """x + gate sublayer(norm(x)), with a gate that is learnt (Bachlechner et al., 2021)."""

    begin: NonNegativeFloat = 0.0

    def build(self, width, norm, dropout, *, is_last):
        import torch
        from torch import nn

        class GatedModule(nn.Module):
            def __init__(self, begin):
                super().__init__()
                self.norm = norm.build(width)
                self.gate = nn.Parameter(torch.full((1,), begin))

            def forward(self, x, sublayer):
                return x + self.gate * sublayer(self.norm(x))

        return GatedModule(self.begin)


'''
SAMPLER = '''
from configs.components import component
from model.parts import Sampler
from configs.fields import Count


@component("sampler", "their_stubborn")
class Stubborn(Sampler):
    """Draws one piece wherever that is possible."""

    piece: Count = 0

    def candidates(self, log_p):
        import torch

        is_possible = log_p[:, self.piece].exp() > 0
        tokens = log_p.argmax(1).masked_fill(is_possible, self.piece)[:, None]
        return torch.ones_like(tokens, dtype=log_p.dtype), tokens
'''

PARTS = {
    "sampler": Case(
        code=SAMPLER,
        chosen={"evaluation": {"search": {"sampler": {"kind": "their_stubborn", "piece": 9}}}},
    ),
    "attention": Case(
        code=ATTENTION,
        chosen={"model": {"attention": {"kind": "their_single_head", "sharpness": 0.5}}},
    ),
    "feed_forward": Case(
        code=FEED_FORWARD,
        chosen={"model": {"feed_forward": {"kind": "their_squared_relu", "d_ff": 48}}},
    ),
    "initialisation": Case(
        code=INITIALISATION,
        chosen={"model": {"initialisation": {"kind": "their_small", "std": 0.0001}}},
    ),
    "loss": Case(
        code=LOSS,
        chosen={"loss": {"kind": "their_shifted", "shift": 2.0}},
    ),
    "norm": Case(
        code=NORM,
        chosen={"model": {"norm": {"kind": "their_mean_square", "eps": 0.001}}},
    ),
    "positions": Case(
        code=POSITIONS,
        chosen={"model": {"positions": {"kind": "their_cyclic", "period": 7}}},
    ),
    "residual": Case(
        code=RESIDUAL,
        chosen={"model": {"residual": {"kind": "their_gated", "begin": 0.5}}},
    ),
}
