"""Parts of a model of somebody else's: one file, which tests put outside of the repository."""

THEIRS = '''
from configs.components import component
from model.parts import FLOAT, Attention, Loss, LossBytes, Norm, Positions, Residual
from configs.fields import PositiveFloat
from model.components.feed_forward import TwoLayers


@component("attention", "bare")
class Bare(Attention):
    """One head that is as wide as the model and looks at the hidden states themselves."""

    temperature: PositiveFloat = 1.0

    def flops(self, width, *, query_tokens, memory_tokens, memory_length):
        return 2 * width * width * query_tokens + 4 * query_tokens * memory_length * width

    def activation_bytes(self, width, *, rows, length, memory_length, storage):
        return rows * length * (2 * width * storage.element + FLOAT)

    def build(self, width, rotation):
        from torch import nn
        from torch.nn import functional as F

        scale = width**-0.5 / self.temperature

        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                self.query = nn.Linear(width, width, bias=False)

            def forward(self, queries, memory, bias=None, *, is_causal=False, cache=None, memory_is_fixed=False):
                key = value = memory[:, None]
                if cache is not None and memory_is_fixed and cache.key is not None:
                    key, value = cache.key, cache.value
                elif cache is not None:
                    key, value = cache.append(key, value)
                query = self.query(queries)[:, None]
                options = {"attn_mask": bias, "is_causal": is_causal, "scale": scale}
                return F.scaled_dot_product_attention(query, key, value, **options)[:, 0]

        return Module()


@component("feed_forward", "geglu")
class GeGlu(TwoLayers):
    """The inner layer is gated through GELU (Shazeer, 2020). CTranslate2 has such layers, Transformers' have none."""

    programs = frozenset({"ctranslate2"})
    program_names = {"ctranslate2": "GELU"}
    inner_layers = ("inner", "gate")
    num_inner_tensors = 4

    def build(self, width):
        from torch.nn import functional as F

        from model.sublayers import GatedFeedForward

        return GatedFeedForward(width, self.d_ff, F.gelu, self.dropout, bias=self.bias)


@component("positions", "half_rotary")
class HalfRotary(Positions):
    """Half of every head is turned by its position, and the rest is left as it is (Black et al., 2022)."""

    base: PositiveFloat = 10000.0

    def problems_at(self, width, head_width):
        if head_width is None or head_width % 4:
            yield f"attention.kind: its heads are {head_width} wide; allowed with half_rotary is a multiple of 4"

    def build(self, num_positions, width):
        from model.positions import NoPositions

        return NoPositions(num_positions)

    def build_rotation(self, num_positions, head_width):
        import torch
        from torch import nn

        from model.positions import Rotation

        class Module(nn.Module):
            def __init__(self, base):
                super().__init__()
                self.turn = Rotation(num_positions, head_width // 2, base=base)

            def forward(self, x, start=0):
                turned, rest = x.chunk(2, -1)
                return torch.cat([self.turn(turned, start), rest], -1)

        return Module(self.base)


@component("norm", "mean_norm")
class MeanNorm(Norm):
    """Division by the mean of the absolute values."""

    def activation_bytes(self, width, tokens, storage):
        return 3 * tokens * width * storage.element + tokens * FLOAT

    def build(self, width):
        import torch
        from torch import nn

        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(width))

            def forward(self, x):
                return self.weight * x / (x.abs().mean(-1, keepdim=True) + 1e-5)

        return Module()


@component("residual", "rezero")
class ReZero(Residual):
    """x + alpha * dropout(sublayer(x)), without a norm; alpha begins with 0 (Bachlechner et al., 2021)."""

    def activation_bytes(self, width, norm, dropout, *, tokens, is_last, storage):
        return 2 * tokens * width * storage.element + storage.masks(tokens * width, dropout)

    def build(self, width, norm, dropout, *, is_last):
        import torch
        from torch import nn

        from model.sublayers import Dropout

        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                self.alpha = nn.Parameter(torch.zeros(1))
                self.dropout = Dropout(dropout)

            def forward(self, x, sublayer):
                return x + self.alpha * self.dropout(sublayer(x))

        return Module()


@component("loss", "focal")
class Focal(Loss):
    """(1 - p)^gamma times the negative log-likelihood (Lin et al., 2017)."""

    gamma: PositiveFloat = 2.0

    def activation_bytes(self, width, tokens, vocabulary, *, has_bias, storage):
        return LossBytes(kept=2 * tokens * vocabulary * FLOAT, working=tokens * vocabulary * FLOAT)

    def build(self):
        from torch.nn import functional as F

        def loss(hidden, weight, bias, targets, *, padding_id):
            log_p = F.log_softmax(F.linear(hidden, weight, bias).float(), -1)
            nll = -log_p.gather(1, targets[:, None])[:, 0]
            nll = nll.masked_fill(targets == padding_id, 0.0)
            return ((1 - (-nll).exp()) ** self.gamma * nll).sum(), nll.detach().sum()

        return loss
'''
