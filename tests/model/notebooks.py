"""The five reference systems as plain modules under their own names: what `model.reference.load` is held against."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Sizes = dict[str, int]


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    return x.view(x.shape[0], x.shape[1], num_heads, -1).transpose(1, 2)


def plain_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, num_heads: int, divisor: float, dropout: nn.Module
) -> Tensor:
    """Heads side by side again; the mask is True where attention may look."""
    q, k, v = (split_heads(x, num_heads) for x in (q, k, v))
    scores = (q @ k.transpose(-2, -1) / divisor).masked_fill(~mask, -1e9)
    return (dropout(scores.softmax(-1)) @ v).transpose(1, 2).flatten(2)


def table(length: int, width: int, base: float = 10000.0) -> Tensor:
    """(1, length, width), element by element."""
    rows = []
    for position in range(length):
        row = []
        for i in range(0, width, 2):
            angle = position / base ** (i / width)
            row += [math.sin(angle), math.cos(angle)]
        rows.append(row)
    return torch.tensor([rows])


class Positional(nn.Module):
    pe: Tensor

    def __init__(self, width: int, length: int, base: float = 10000.0) -> None:
        super().__init__()
        self.register_buffer("pe", table(length, width, base))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.dropout(x + self.pe[:, : x.shape[1]])
        return out


# notebook_postnorm_es and notebook_prenorm_viz


class ScalarNorm(nn.Module):
    def __init__(self, bias_name: str, initial_bias: float) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1))
        self.bias_name = bias_name
        self.register_parameter(bias_name, nn.Parameter(torch.full((1,), initial_bias)))

    def forward(self, x: Tensor) -> Tensor:
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return self.alpha * (x - mean) / (std + 1e-6) + getattr(self, self.bias_name)


class Connection(nn.Module):
    def __init__(self, *, is_pre: bool) -> None:
        super().__init__()
        self.is_pre = is_pre
        self.norm = ScalarNorm("bias", 0.0) if is_pre else ScalarNorm("beta", 1.0)
        self.dropout = nn.Dropout(0.5 if is_pre else 0.1)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.is_pre:
            return x + self.dropout(sublayer(self.norm(x)))  # type: ignore[no-any-return]
        return self.dropout(self.norm(x + sublayer(x)))  # type: ignore[no-any-return]


class BlockAttention(nn.Module):
    def __init__(self, width: int, num_heads: int, *, bias: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.w_q, self.w_k, self.w_v = (nn.Linear(width, width, bias=bias) for _ in range(3))
        self.w_o = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.w_q(q), self.w_k(k), self.w_v(v)
        divisor = math.sqrt(q.shape[-1] // self.num_heads)
        out: Tensor = self.w_o(plain_attention(q, k, v, mask, self.num_heads, divisor, self.dropout))
        return out


class BlockFeedForward(nn.Module):
    def __init__(self, width: int, inner: int, first: str) -> None:
        super().__init__()
        self.first = first
        self.add_module(first, nn.Linear(width, inner))
        self.linear_2 = nn.Linear(inner, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear_2(self.dropout(torch.relu(getattr(self, self.first)(x))))
        return out


class BlockLayer(nn.Module):
    def __init__(self, sizes: Sizes, *, is_pre: bool, is_decoder: bool) -> None:
        super().__init__()
        width, num_heads = sizes["width"], sizes["heads"]
        self.self_attention_block = BlockAttention(width, num_heads, bias=is_pre)
        if is_decoder:
            self.cross_attention_block = BlockAttention(width, num_heads, bias=is_pre)
        self.feed_forward_block = BlockFeedForward(width, sizes["inner"], "linear_l" if is_pre else "linear_1")
        count = 3 if is_decoder else 2
        self.residual_connections = nn.ModuleList([Connection(is_pre=is_pre) for _ in range(count)])

    def forward(
        self, x: Tensor, mask: Tensor, memory: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> Tensor:
        connections = list(self.residual_connections)
        x = connections[0](x, lambda h: self.self_attention_block(h, h, h, mask))
        if memory is not None:
            x = connections[1](x, lambda h: self.cross_attention_block(h, memory, memory, memory_mask))
        out: Tensor = connections[-1](x, self.feed_forward_block)
        return out


class BlockStack(nn.Module):
    def __init__(self, sizes: Sizes, *, is_pre: bool, is_decoder: bool) -> None:
        super().__init__()
        num_layers = sizes["decoder_layers" if is_decoder else "encoder_layers"]
        self.layers = nn.ModuleList(
            [BlockLayer(sizes, is_pre=is_pre, is_decoder=is_decoder) for _ in range(num_layers)]
        )
        if is_pre:
            self.norm = ScalarNorm("bias", 0.0)

    def forward(self, x: Tensor, *context: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, *context)
        return self.norm(x) if hasattr(self, "norm") else x


class ScaledEmbedding(nn.Module):
    def __init__(self, vocab: int, width: int, name: str) -> None:
        super().__init__()
        self.width, self.name = width, name
        self.add_module(name, nn.Embedding(vocab, width))

    def forward(self, ids: Tensor) -> Tensor:
        return getattr(self, self.name)(ids) * math.sqrt(self.width)  # type: ignore[no-any-return]


class Projection(nn.Module):
    def __init__(self, width: int, vocab: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, vocab)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log_softmax(self.proj(x), dim=-1)


class BlockTransformer(nn.Module):
    """Post-norm as in notebook_postnorm_es, pre-norm as in notebook_prenorm_viz."""

    def __init__(self, sizes: Sizes, *, is_pre: bool) -> None:
        super().__init__()
        width, base = sizes["width"], 10000.0 if is_pre else 1000.0
        self.encoder = BlockStack(sizes, is_pre=is_pre, is_decoder=False)
        self.decoder = BlockStack(sizes, is_pre=is_pre, is_decoder=True)
        self.src_embed = ScaledEmbedding(sizes["source_vocab"], width, "embedding")
        self.tgt_embed = ScaledEmbedding(sizes["target_vocab"], width, "embedding")
        self.src_pos = Positional(width, sizes["length"], base)
        self.tgt_pos = Positional(width, sizes["length"], base)
        self.projection_layer = Projection(width, sizes["target_vocab"])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        source_mask, target_mask = masks(source, target)
        memory = self.encoder(self.src_pos(self.src_embed(source)), source_mask)
        y = self.decoder(self.tgt_pos(self.tgt_embed(target)), target_mask, memory, source_mask)
        out: Tensor = self.projection_layer(y)
        return out


def masks(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Padding (0) of the source (B, 1, 1, S), and the future (T, T); True where attention may look."""
    length = target.shape[1]
    return (source != 0)[:, None, None, :], torch.ones(length, length).tril().bool()


# notebook_annotated_fr


class VectorNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.a_2, self.b_2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return self.a_2 * (x - mean) / torch.sqrt(std**2 + 1e-6) + self.b_2


class Sublayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = VectorNorm(width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        out: Tensor = x + self.dropout(sublayer(self.norm(x)))
        return out


class ListAttention(nn.Module):
    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.linears = nn.ModuleList([nn.Linear(width, width) for _ in range(4)])
        self.dropout = nn.Dropout(0.1)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (linear(x) for linear, x in zip(list(self.linears)[:3], (q, k, v), strict=True))
        divisor = math.sqrt(q.shape[-1] // self.num_heads)
        out: Tensor = self.linears[3](plain_attention(q, k, v, mask, self.num_heads, divisor, self.dropout))
        return out


class LinearFeedForward(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.w_2(self.dropout(self.w_1(x)))
        return out


class AnnotatedLayer(nn.Module):
    def __init__(self, sizes: Sizes, *, is_decoder: bool) -> None:
        super().__init__()
        width, num_heads = sizes["width"], sizes["heads"]
        self.self_attn = ListAttention(width, num_heads)
        if is_decoder:
            self.src_attn = ListAttention(width, num_heads)
        self.feed_forward = LinearFeedForward(width, sizes["inner"])
        self.sublayer = nn.ModuleList([Sublayer(width) for _ in range(3 if is_decoder else 2)])

    def forward(
        self, x: Tensor, mask: Tensor, memory: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> Tensor:
        x = self.sublayer[0](x, lambda h: self.self_attn(h, h, h, mask))
        if memory is not None:
            x = self.sublayer[1](x, lambda h: self.src_attn(h, memory, memory, memory_mask))
        out: Tensor = self.sublayer[-1](x, self.feed_forward)
        return out


class AnnotatedStack(nn.Module):
    def __init__(self, sizes: Sizes, *, is_decoder: bool) -> None:
        super().__init__()
        num_layers = sizes["decoder_layers" if is_decoder else "encoder_layers"]
        self.layers = nn.ModuleList([AnnotatedLayer(sizes, is_decoder=is_decoder) for _ in range(num_layers)])
        self.norm = VectorNorm(sizes["width"])

    def forward(self, x: Tensor, *context: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, *context)
        out: Tensor = self.norm(x)
        return out


class AnnotatedTransformer(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, length = sizes["width"], sizes["length"]
        self.encoder = AnnotatedStack(sizes, is_decoder=False)
        self.decoder = AnnotatedStack(sizes, is_decoder=True)
        self.src_embed = nn.Sequential(ScaledEmbedding(sizes["source_vocab"], width, "lut"), Positional(width, length))
        self.tgt_embed = nn.Sequential(ScaledEmbedding(sizes["target_vocab"], width, "lut"), Positional(width, length))
        self.generator = Projection(width, sizes["target_vocab"])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        source_mask, target_mask = masks(source, target)
        memory = self.encoder(self.src_embed(source), source_mask)
        out: Tensor = self.generator(self.decoder(self.tgt_embed(target), target_mask, memory, source_mask))
        return out


# notebook_gelu_dk


class NarrowAttention(nn.Module):
    def __init__(self, sizes: Sizes, *, is_causal: bool = False) -> None:
        super().__init__()
        width, self.num_heads, self.d_k = sizes["width"], sizes["heads"], sizes["head_width"]
        self.query, self.key, self.value = (nn.Linear(width, self.num_heads * self.d_k) for _ in range(3))
        self.out = nn.Linear(self.num_heads * self.d_k, width)
        self.is_causal = is_causal
        if is_causal:
            self.register_buffer("causal_mask", torch.ones(sizes["length"], sizes["length"]).tril())

    def forward(self, q: Tensor, k: Tensor, v: Tensor, is_real: Tensor) -> Tensor:
        mask = is_real[:, None, None, :]
        if self.is_causal:
            mask = mask & self.causal_mask[: q.shape[1], : q.shape[1]].bool()
        q, k, v = self.query(q), self.key(k), self.value(v)
        heads = plain_attention(q, k, v, mask, self.num_heads, math.sqrt(self.d_k), nn.Identity())
        out: Tensor = self.out(heads)
        return out


def gelu_feed_forward(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))


class NarrowEncoderBlock(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention = NarrowAttention(sizes)
        self.norm1, self.norm2 = nn.LayerNorm(sizes["width"]), nn.LayerNorm(sizes["width"])
        self.ff = gelu_feed_forward(sizes["width"])
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, is_real: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x, x, x, is_real))
        x = self.norm2(x + self.ff(x))
        out: Tensor = self.dropout(x)
        return out


class NarrowDecoderBlock(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention_1, self.attention_2 = NarrowAttention(sizes, is_causal=True), NarrowAttention(sizes)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(sizes["width"]) for _ in range(3))
        self.ff = gelu_feed_forward(sizes["width"])
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, is_real: Tensor, memory: Tensor, memory_is_real: Tensor) -> Tensor:
        x = self.norm1(x + self.attention_1(x, x, x, is_real))
        x = self.norm2(x + self.attention_2(x, memory, memory, memory_is_real))
        x = self.norm3(x + self.ff(x))
        out: Tensor = self.dropout(x)
        return out


class NarrowStack(nn.Module):
    def __init__(self, sizes: Sizes, *, is_decoder: bool) -> None:
        super().__init__()
        width, vocab = sizes["width"], sizes["target_vocab" if is_decoder else "source_vocab"]
        block = NarrowDecoderBlock if is_decoder else NarrowEncoderBlock
        self.embedding = nn.Embedding(vocab, width)
        self.pos_encoding = Positional(width, sizes["length"])
        num_layers = sizes["decoder_layers" if is_decoder else "encoder_layers"]
        self.transformer_blocks = nn.ModuleList([block(sizes) for _ in range(num_layers)])
        self.norm = nn.LayerNorm(width)
        if is_decoder:
            self.out = nn.Linear(width, vocab)

    def forward(self, ids: Tensor, *memory: Tensor) -> Tensor:
        x = self.pos_encoding(self.embedding(ids))
        for block in self.transformer_blocks:
            x = block(x, ids != 0, *memory)
        x = self.norm(x)
        return self.out(x) if hasattr(self, "out") else x


class NarrowTransformer(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.encoder = NarrowStack(sizes, is_decoder=False)
        self.decoder = NarrowStack(sizes, is_decoder=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        out: Tensor = self.decoder(target, self.encoder(source), source != 0)
        return out


# notebook_learned_pos


class WideScaleAttention(nn.Module):
    def __init__(self, width: int, num_heads: int, *, bias: bool = True) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.values, self.keys, self.queries = (nn.Linear(width, width, bias=bias) for _ in range(3))
        self.fc_out = nn.Linear(width, width)

    def forward(self, values: Tensor, keys: Tensor, query: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.queries(query), self.keys(keys), self.values(values)
        heads = plain_attention(q, k, v, mask, self.num_heads, math.sqrt(q.shape[-1]), nn.Identity())
        out: Tensor = self.fc_out(heads)
        return out


class LearnedBlock(nn.Module):
    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.attention = WideScaleAttention(width, num_heads)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(0.1)

    def forward(self, value: Tensor, key: Tensor, query: Tensor, mask: Tensor) -> Tensor:
        x = self.dropout(self.norm1(self.attention(value, key, query, mask) + query))
        out: Tensor = self.dropout(self.norm2(self.feed_forward(x) + x))
        return out


class LearnedDecoderBlock(nn.Module):
    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.attention = WideScaleAttention(width, num_heads)
        self.norm = nn.LayerNorm(width)
        self.transformer_block = LearnedBlock(width, num_heads)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, memory: Tensor, source_mask: Tensor, target_mask: Tensor) -> Tensor:
        query = self.dropout(self.norm(self.attention(x, x, x, target_mask) + x))
        out: Tensor = self.transformer_block(memory, memory, query, source_mask)
        return out


class LearnedSide(nn.Module):
    def __init__(self, sizes: Sizes, *, is_decoder: bool) -> None:
        super().__init__()
        width, vocab = sizes["width"], sizes["target_vocab" if is_decoder else "source_vocab"]
        self.word_embedding = nn.Embedding(vocab, width)
        self.position_embedding = nn.Embedding(sizes["length"], width)
        block = LearnedDecoderBlock if is_decoder else LearnedBlock
        num_layers = sizes["decoder_layers" if is_decoder else "encoder_layers"]
        self.layers = nn.ModuleList([block(width, sizes["heads"]) for _ in range(num_layers)])
        self.dropout = nn.Dropout(0.1)
        if is_decoder:
            self.fc_out = nn.Linear(width, vocab)

    def embed(self, ids: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1]).expand(ids.shape)
        out: Tensor = self.dropout(self.word_embedding(ids) + self.position_embedding(positions))
        return out


class LearnedTransformer(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.encoder = LearnedSide(sizes, is_decoder=False)
        self.decoder = LearnedSide(sizes, is_decoder=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        source_mask, target_mask = masks(source, target)
        memory = self.encoder.embed(source)
        for layer in self.encoder.layers:
            memory = layer(memory, memory, memory, source_mask)
        y = self.decoder.embed(target)
        for layer in self.decoder.layers:
            y = layer(y, memory, source_mask, target_mask)
        out: Tensor = self.decoder.fc_out(y)
        return out


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
