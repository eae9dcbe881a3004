"""Sizes of presets, by parameter counts."""

import pytest
import torch

from configs import preset_model
from model import build_transformer
from tests.model.reference import SPECIAL

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
