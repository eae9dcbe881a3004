"""Weights laid out for a CPU while a model decodes."""

import pytest
import torch
from torch import nn

from model.kernels.cpu import linear, use
from model.kernels.cpu.packing import packed
from model.search import search
from tests.flops import flop_counter
from tests.model.reference import pad
from tests.model.search.plain import SOURCES, assert_same, peaked_model, section_of


@pytest.mark.parametrize("by_onednn", [True, False])
@pytest.mark.parametrize("changes", [{}, {"output_bias": True, "attention_bias": False, "num_kv_heads": 1}], ids=str)
def test_changes_no_result_and_leaves_nothing(
    changes: dict[str, bool], by_onednn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "_onednn_is_wanted", by_onednn and linear.has_onednn())
    model, section = peaked_model(5, vocab=9, **changes), section_of()
    use(model)
    before = [dict(vars(module)) for module in model.modules()]
    plain = search(model, pad(SOURCES), section, n_best=4)
    with packed([model]):
        found = search(model, pad(SOURCES), section, n_best=4)
        for name in ("forward", "project"):
            assert any(name in vars(module) for module in model.modules())
    for one, other in zip(found, plain, strict=True):
        assert_same(one, [(h.ids, h.score) for h in other])
    assert [set(vars(module)) for module in model.modules()] == [set(names) for names in before]


@pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="oneDNN does not multiply bf16 on this CPU"
)
def test_keeps_every_bit_in_bf16() -> None:
    model, section = peaked_model(5, vocab=9).to(torch.bfloat16), section_of()
    plain = search(model, pad(SOURCES), section, n_best=4)
    with packed([model]):
        assert any("forward" in vars(module) for module in model.modules())
        assert search(model, pad(SOURCES), section, n_best=4) == plain


@pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="oneDNN does not multiply bf16 on this CPU"
)
@pytest.mark.parametrize("length", [1, 3])
def test_bf16_comes_in_few_numbers_of_rows(length: int) -> None:
    model = peaked_model(5).to(torch.bfloat16)
    query = next(module for module in model.modules() if isinstance(module, nn.Linear))
    x = torch.randn(70, length, query.weight.shape[1], dtype=torch.bfloat16)
    plain = [query(x[:n]) for n in range(1, 71)]
    flops = set()
    with packed([model]), torch.inference_mode():
        for n, wanted in enumerate(plain, 1):
            with flop_counter() as counter:
                found = query(x[:n])
            flops.add(counter.get_total_flops())
            # Sums may come in another order; torch's own do too, with more than 64 rows or fewer.
            torch.testing.assert_close(found, wanted)
            filled = torch.zeros(-(-n * length // 32) * 32, 1, x.shape[2], dtype=x.dtype)
            filled[: n * length, 0] = x[:n].flatten(0, 1)
            assert torch.equal(query(filled)[: n * length, 0], found.flatten(0, 1)), "the rows beside change none"
    assert flops == {2 * rows * query.weight.numel() for rows in range(32, 70 * length + 32, 32)}


def test_leaves_other_precisions_alone() -> None:
    model = peaked_model(5).to(torch.float64)
    with packed([model]):
        assert not any("forward" in vars(module) for module in model.modules())
