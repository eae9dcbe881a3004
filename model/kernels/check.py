"""Checks the GPU kernels on a device against their plain implementations on the CPU."""

import copy
import functools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from configs import ModelSection
from configs.components import make
from model.kernels import use_kernels
from model.layout import PACKED, Layout, LayoutKind, Side
from model.loss import CrossEntropy
from model.transformer import Objective, SpecialIds, build_transformer

TOLERANCE = 0.1
"""Largest error relative to a gradient's norm: half precision differs by some hundredths, a wrong kernel by about 1."""
NEGLIGIBLE = 0.01
"""Gradients with norms below this fraction of the largest norm are only rounding, such as those of key biases."""
VOCABULARY = 70
LENGTHS = ((5, 1, 9), (3, 7, 2))
"""Source and target lengths of three pairs, EOS and BOS included."""


@functools.cache
def problem(device: torch.device, dtype: torch.dtype, kind: LayoutKind = "padded") -> str:
    """What is wrong with the kernels on a device, in one line; empty if nothing is.

    Compares losses and gradients of two tiny models, dropout included, with those of the plain implementations on the
    CPU in fp32.

    Args:
        device: a GPU, or the pseudo device of the tests.
        dtype: of the weights.
        kind: the layout of the passes.
    """
    try:
        differences = (_difference(objective, device, dtype, kind) for objective in _objectives())
        return next(filter(None, differences), "")
    except Exception as error:  # anything may fail while a kernel compiles or starts
        return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _objectives() -> Iterator[Objective]:
    """One model as in the paper and one like today's LLMs; together they contain every part that has a kernel."""
    common = {"d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.2}
    attention = make("attention", "multi_head", num_heads=2, dropout=0.0)
    modern = {
        "attention": make("attention", "multi_head", num_heads=2, dropout=0.0, bias=False, output_bias=False),
        "feed_forward": make("feed_forward", "swiglu", d_ff=96, bias=False),
        "positions": make("positions", "rotary"),
        "norm": make("norm", "rms"),
        "residual": make("residual", "pre"),
    }
    paper = {"attention": attention, "feed_forward": make("feed_forward", "relu", d_ff=96)}
    for fields in (paper, modern):
        section = ModelSection(**{**common, **fields})
        special = SpecialIds(pad=0, bos=1, eos=2)
        model = build_transformer(
            section, source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY, special=special, seed=1
        )
        yield Objective(model, CrossEntropy(label_smoothing=0.1)).train()


def _difference(objective: Objective, device: torch.device, dtype: torch.dtype, kind: LayoutKind) -> str:
    objective.to(dtype)
    expected = _gradients(copy.deepcopy(objective).float(), torch.device("cpu"), kind)
    gradients = _gradients(objective.to(device), device, kind)
    largest = max(float(x.norm()) for name, x in expected.items() if name != "loss")
    for name, x in expected.items():
        difference = float((gradients[name] - x).norm()) / max(float(x.norm()), NEGLIGIBLE * largest)
        if not difference <= TOLERANCE:  # NaN, too
            return f"{'the loss' if name == 'loss' else f'the gradient of {name}'} is {difference:.2g} of its size off"
    return ""


def _gradients(objective: Objective, device: torch.device, kind: LayoutKind) -> dict[str, Tensor]:
    """Loss and gradients of a pass, as fp32 on the CPU."""
    use_kernels(objective, device, "cuda")
    is_packed = kind in PACKED
    draw = torch.Generator().manual_seed(1)
    (source, of_source), (target, of_target) = (_side(n, draw, device, is_packed=is_packed) for n in LENGTHS)
    loss, _ = objective(source, target, target, Layout(source=of_source, target=of_target, kind=kind))
    loss.backward()
    gradients = {name: p.grad for name, p in objective.named_parameters() if p.grad is not None}
    return {name: x.detach().float().cpu() for name, x in {"loss": loss, **gradients}.items()}


def _side(
    lengths: Sequence[int], draw: torch.Generator, device: torch.device, *, is_packed: bool
) -> tuple[Tensor, Side]:
    """Random ids, (1, N) packed or (R, L) padded, and their positions."""
    rows = [torch.randint(3, VOCABULARY, (length,), generator=draw) for length in lengths]
    long = max(lengths)
    places = [[7, 0, row, i] for row, length in enumerate(lengths) for i in range(length if is_packed else long)]
    side = Side(
        places=torch.tensor(places, dtype=torch.int32).to(device),
        bounds=torch.tensor((0, *lengths)).cumsum(0).to(device, torch.int32) if is_packed else None,
        longest=long,
    )
    ids = torch.cat(rows)[None] if is_packed else nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return ids.to(device), side
