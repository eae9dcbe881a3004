"""FLOPs of a corpus, by the formulas of `zeromt plan`."""

import dataclasses

import numpy as np
import torch

from benchmarks.device.work import flops_per_target_token
from data_pipeline.tokenizer import BOS_ID, EOS_ID, PAD_ID
from model import Objective, SpecialIds, build_transformer
from model.kernels import use_kernels
from model.loss import CrossEntropy
from tests.flops import flop_counter
from tests.model.flat import section_of


def test_flops_are_those_that_torch_counts() -> None:
    section = section_of(d_model=16, num_heads=2, d_ff=32, encoder_layers=2, decoder_layers=1, max_positions=32)
    special = SpecialIds(pad=PAD_ID, bos=BOS_ID, eos=EOS_ID)
    model = build_transformer(section, source_vocab_size=50, target_vocab_size=50, special=special, seed=1)
    use_kernels(model, torch.device("cpu"))
    objective = Objective(model, CrossEntropy(0.1))
    lengths = np.array([[7, 5], [3, 9], [7, 5]])
    with flop_counter() as counter:
        for source, target in lengths.tolist():
            sides = [torch.full((1, length), 5) for length in (source, target, target)]
            objective(*sides).loss_sum.backward()
    recomputing = dataclasses.replace(section, activation_checkpointing=True)
    for measured in (section, recomputing):
        assert flops_per_target_token(measured, 50, lengths) == counter.get_total_flops() / (5 + 9 + 5)
