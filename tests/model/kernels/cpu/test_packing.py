"""Weights laid out for a CPU while a model decodes."""

import pytest
import torch

from model import kernels
from model.kernels.cpu import decoding, use
from model.kernels.cpu.decoding import packed_weights
from model.search import search
from tests.model.reference import pad
from tests.model.search.plain import SOURCES, assert_same, peaked_model, section_of


@pytest.mark.parametrize("by_onednn", [True, False])
@pytest.mark.parametrize("changes", [{}, {"output_bias": True, "attention_bias": False, "num_kv_heads": 1}], ids=str)
def test_changes_no_result_and_leaves_nothing(
    changes: dict[str, bool], by_onednn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_FP32_PREFERS_ONEDNN", by_onednn and decoding._HAS_ONEDNN)
    model, section = peaked_model(5, vocab=9, **changes), section_of()
    use(model)
    before = [dict(vars(module)) for module in model.modules()]
    plain = search(model, pad(SOURCES), section, n_best=4)
    with kernels.packed_weights([model], torch.device("cpu")):
        packed = search(model, pad(SOURCES), section, n_best=4)
        for name in ("forward", "project"):
            assert any(name in vars(module) for module in model.modules())
    for one, other in zip(packed, plain, strict=True):
        assert_same(one, [(h.ids, h.score) for h in other])
    assert [set(vars(module)) for module in model.modules()] == [set(names) for names in before]


@pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="oneDNN does not multiply bf16 on this CPU"
)
def test_keeps_every_bit_in_bf16() -> None:
    model, section = peaked_model(5, vocab=9).to(torch.bfloat16), section_of()
    plain = search(model, pad(SOURCES), section, n_best=4)
    with packed_weights([model]):
        assert any("forward" in vars(module) for module in model.modules())
        assert search(model, pad(SOURCES), section, n_best=4) == plain
