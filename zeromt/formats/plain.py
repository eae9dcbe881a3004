"""A model's weights in the plain form that other programs use.

Variants that other programs do not have are rewritten as equivalent weights. The model's parts do this themselves
(`ModelPart.plain_weights`): grouped heads become full ones, the scale of the scores goes into the queries, a norm by
the sample variance becomes a layer norm. This module adds zeros for missing biases, the table of positions, and three
embeddings if they are tied. The result has LayerNorm or RMSNorm, full multi-head attention scaled by 1 / sqrt(head
width), and biases everywhere.

Beside it: what all exports for other programs share, their packages and notes on language tags.
"""

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from configs import ModelSection, UserError
from data_pipeline.tokenizer import WORD_BEGIN, Tokenizer
from model import Transformer
from model.parts import ModelPart
from model.transformer import TokenEmbedding

_LAST_NORMS = ("encoder.norm", "decoder.norm")


def parts(section: ModelSection) -> Iterator[ModelPart]:
    """The parts of a model that an export must know how to write."""
    yield from (section.attention, section.feed_forward, section.positions, section.norm, section.residual)


def part_problems(section: ModelSection, program: str) -> Iterator[str]:
    """Why a program does not support the parts, one line each."""
    for part in parts(section):
        yield from (f"model.{line}" for line in part.export_problems(program, section))


def plain_weights(model: Transformer) -> dict[str, Tensor]:
    """Every weight by its name, as described above.

    Besides the parameters there are `source_embedding.positions` and `target_embedding.positions`, tables
    (max_positions, D) that are added to the embeddings, except with rotary positions. `output.bias` and the biases of
    all projections are always present.
    """
    section = model.section
    weights = {name: p.detach() for name, p in model.named_parameters(remove_duplicate=False)}
    plain = {name: tensor for name, tensor in weights.items() if "_embedding.positions." not in name}
    for name, part in _parts(model):
        inside = {n.removeprefix(f"{name}."): t for n, t in weights.items() if n.startswith(f"{name}.")}
        plain |= {f"{name}.{n}": tensor for n, tensor in part.plain_weights(inside, section).items()}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and module.bias is None and f"{name}.bias" not in plain:
            plain[f"{name}.bias"] = torch.zeros(module.out_features)
        elif isinstance(module, TokenEmbedding):
            table = section.positions.table(module.positions, section.max_positions, section.d_model)
            if table is not None:
                plain[f"{name}.positions"] = table
    plain.setdefault("output.bias", torch.zeros(model.output.weight.shape[0]))
    return plain


def _parts(model: Transformer) -> Iterator[tuple[str, ModelPart]]:
    """The parts with weights, by module name; residuals are exported by their norms."""
    section = model.section
    for name, _ in model.named_modules():
        if name.endswith("_attention"):
            yield name, section.attention
        elif name.endswith(".feed_forward"):
            yield name, section.feed_forward
        elif name.endswith("_residual.norm") or (name in _LAST_NORMS and section.has_final_norm):
            yield name, section.norm


def optional(name: str, option: str) -> Any:
    """A module of the `export` extra.

    Raises:
        UserError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise UserError(
            f"{option}: needs the package {package} ({error}); install it by `make install EXTRAS=[export]` "
            "or `pip install 'zeromt[export]'`"
        ) from error


_TEXT = "A dog, 12 dogs."
"""Text after a tag, to see whether it is cut into pieces as in training."""


def tag_notes(tokenizer: Tokenizer, encode: Callable[[list[str]], Sequence[Sequence[int]]]) -> list[str]:
    """Notes on how to use tags; empty if there are none.

    Args:
        tokenizer: the run's.
        encode: the exported tokenizer: maps lines to ids without EOS.
    """
    if not tokenizer.tags:
        return []
    lines = [f"{tag} {_TEXT}" for tag in tokenizer.tags]
    rows = zip(tokenizer.tags, tokenizer.encode_source(lines), encode(lines), strict=True)
    wrong = [tag for tag, ours, theirs in rows if list(ours) != list(theirs)]
    if not wrong:
        return [f"tags: {tokenizer.tags[0]} and a space before a text are one piece of the exported tokenizer's"]
    return [
        f"tags: the exported tokenizer does not cut {', '.join(wrong)}; put the piece {WORD_BEGIN}{wrong[0]} before "
        "those of the text"
    ]
