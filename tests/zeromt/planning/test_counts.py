"""Parameters and FLOPs against torch's own counts."""

import torch
from hypothesis import given, settings

from configs import ModelSection
from configs.components import make
from model import Objective, SpecialIds, Transformer, build_transformer, flops
from model.flops import BatchShape, Vocabularies, by_part, parameters
from model.kernels import use_kernels
from tests.flops import flop_counter
from tests.model.flat import section_of
from tests.zeromt.planning.options import models

SPECIAL = SpecialIds(pad=0, bos=1, eos=2)
SHAPE = BatchShape(rows=3, source=5, target=7)
LOSS = make("loss", "cross_entropy")


def build(section: ModelSection, vocabularies: Vocabularies, device: str) -> Transformer:
    with torch.device(device):
        model = build_transformer(
            section,
            source_vocab_size=vocabularies.source,
            target_vocab_size=vocabularies.target,
            special=SPECIAL,
            seed=1,
        )
    use_kernels(model, torch.device(device))
    return model


def test_parameters_by_part() -> None:
    """Counted by hand."""
    sizes = {"d_model": 8, "num_heads": 2, "d_ff": 16, "encoder_layers": 2, "decoder_layers": 3}
    section = section_of(**sizes, tied_embeddings="decoder", norm_position="pre")
    attention, feed_forward, norm = 4 * (8 * 8 + 8), 2 * 8 * 16 + 16 + 8, 2 * 8
    expected = {
        "embedding": (9 + 11) * 8,
        "encoder attention": 2 * attention,
        "encoder feed-forward": 2 * feed_forward,
        "decoder self-attention": 3 * attention,
        "decoder cross-attention": 3 * attention,
        "decoder feed-forward": 3 * feed_forward,
        "norms": (2 * 2 + 3 * 3 + 2) * norm,
        "output": 0,
    }
    assert by_part(parameters(section, Vocabularies(source=9, target=11))) == expected


def ids(rows: int, length: int) -> torch.Tensor:
    return torch.full((rows, length), 5)


def count(section: ModelSection, vocabularies: Vocabularies, *, backward: bool) -> int:
    objective = Objective(build(section, vocabularies, "cpu"), LOSS.build()).train()
    inputs = ids(SHAPE.rows, SHAPE.source), ids(SHAPE.rows, SHAPE.target), ids(SHAPE.rows, SHAPE.target)
    with flop_counter() as counter, torch.set_grad_enabled(backward):
        loss = objective(*inputs).loss_sum
        if backward:
            loss.backward()
    return int(counter.get_total_flops())


@settings(max_examples=15, deadline=None)
@given(models())
def test_flops_are_those_that_torch_counts(drawn: tuple[ModelSection, Vocabularies]) -> None:
    assert count(*drawn, backward=False) == sum(flops.forward_flops(drawn[0], LOSS, drawn[1], SHAPE).values())
    assert count(*drawn, backward=True) == sum(flops.executed_flops(drawn[0], LOSS, drawn[1], SHAPE).values())
