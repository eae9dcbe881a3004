"""What the decoding benchmarks compare with is what they say; the programs themselves are the benchmarks' matter."""

import pytest
import torch

from data_pipeline.tokenizer import BOS_ID, EOS_ID, PAD_ID
from model import SpecialIds, build_transformer
from tests.model.flat import section_of
from tests.verification.export_equality import gap

SPECIAL = SpecialIds(pad=PAD_ID, bos=BOS_ID, eos=EOS_ID)
SECTION = section_of(d_model=16, num_heads=2, d_ff=32, encoder_layers=1, decoder_layers=1, max_positions=32)


def test_a_gap_is_between_the_first_tokens_that_differ() -> None:
    model = build_transformer(SECTION, source_vocab_size=20, target_vocab_size=20, special=SPECIAL, seed=1).eval()
    source = [5, 6, 7, EOS_ID]
    with torch.no_grad():
        logits_TV = model.output(model(torch.tensor([source]), torch.tensor([[BOS_ID, 8, 9, 10]])))[0]
    log_p_TV = logits_TV.log_softmax(-1)
    between_pieces = abs(float(log_p_TV[1, 9] - log_p_TV[1, 11]))
    assert gap(model, source, [8, 9, 10], [8, 11, 10]) == pytest.approx(between_pieces, abs=1e-5)
    # where one ends, EOS is the token that differs
    at_the_end = abs(float(log_p_TV[2, EOS_ID] - log_p_TV[2, 10]))
    assert gap(model, source, [8, 9], [8, 9, 10]) == pytest.approx(at_the_end, abs=1e-5)
