"""Presets: sizes by parameter counts, and that each learns."""

from collections.abc import Iterator

import pytest
import torch

from configs import preset_model
from configs.reading.shipped import shipped_presets
from model import Objective, build_transformer
from model.loss import CrossEntropy
from tests.model.flat import nested
from tests.model.reference import BOS, EOS, SPECIAL, pad

PRESETS = shipped_presets()

# (preset, pieces, parameters): of the papers and of the published checkpoints, where there are such; else by hand
COUNTS = [
    ("vaswani_base", 37_000, 63_082_496),
    ("vaswani_big", 37_000, 214_245_376),
    ("nllb_600m", 256_206, 615_073_792),
    ("nllb_3b", 256_206, 3_344_863_232),
    ("deep_shallow", 32_000, 100_451_328),
    ("modern", 32_000, 61_227_008),
    ("student_small", 32_000, 17_139_712),
    ("student_micro", 32_000, 9_407_424),
]


@pytest.mark.parametrize(("preset", "vocab", "expected"), COUNTS)
def test_number_of_parameters(preset: str, vocab: int, expected: int) -> None:
    with torch.device("meta"):
        model = build_transformer(
            preset_model(preset, {}), source_vocab_size=vocab, target_vocab_size=vocab, special=SPECIAL, seed=1
        )
    assert sum(p.numel() for p in model.parameters()) == expected


def copies(num_updates: int) -> Iterator[list[list[int]]]:
    """Batches of rows to copy."""
    generator = torch.Generator().manual_seed(3)
    for _ in range(num_updates):
        ids = torch.randint(3, 12, (16, 4), generator=generator)
        yield ids.tolist()


@pytest.mark.parametrize("preset", PRESETS)
def test_learns(preset: str) -> None:
    """To copy, at a small width and with its own depths up to three; forty updates are a beginning."""
    own = preset_model(preset, {})
    depths = {name: min(getattr(own, name), 3) for name in ("encoder_layers", "decoder_layers")}
    sizes = {"d_model": 32, "num_heads": 4, "head_width": 8, "d_ff": 64, "max_positions": 16, **depths}
    model = build_transformer(
        preset_model(preset, nested(sizes)), source_vocab_size=12, target_vocab_size=12, special=SPECIAL, seed=1
    )
    objective = Objective(model, CrossEntropy(0.0)).train()
    adam = torch.optim.Adam(objective.parameters(), lr=2e-3)
    torch.manual_seed(1)
    losses = []
    for rows in copies(40):
        ended = [[*row, EOS] for row in rows]
        out = objective(pad(ended), pad([[BOS, *row] for row in rows]), pad(ended))
        loss = out.loss_sum / sum(map(len, ended))
        losses.append(loss.item())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(objective.parameters(), 1.0)
        adam.step()
        adam.zero_grad()
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
