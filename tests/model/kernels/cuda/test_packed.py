"""Padded, packed and merged passes: the same loss, gradients and dropout, for every option of the model."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from configs import SearchSection
from data_pipeline.stream.batch import MicroBatch
from model import Objective
from model.kernels.cuda import attention, use
from model.kernels.cuda.attention import packed_attention
from model.kernels.cuda.dropout import CudaDropout
from model.loss import CrossEntropy
from model.search import search
from tests.device.pseudo import DEVICE, metered
from tests.model.kernels.cuda.batches import lane
from tests.model.reference import tiny_model, tiny_section
from tests.model.test_options import OPTIONS
from trainer.engines.layouts import laid_out

CPU = torch.device("cpu")
LANES = [lane(0, rows=4), lane(1, rows=1), lane(2, rows=6)]
SEEDS = [0x1234_5678_9ABC_DEF0, 77, 2**63 - 1]
each_option = pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS)
SHALLOW = {"encoder_layers": 1, "decoder_layers": 1}
DROPOUTS = {"dropout": 0.3, "activation_dropout": 0.3}

Pass = tuple[Sequence[MicroBatch], Sequence[int]]
TOKENS = sum(m.num_target_tokens for m in LANES)
MERGED: list[Pass] = [(LANES, SEEDS)]
PADDED: list[Pass] = [([m], [s]) for m, s in zip(LANES, SEEDS, strict=True)]


def objective_of(option: dict[str, Any], *, with_kernels: bool = True) -> Objective:
    objective = Objective(tiny_model(tiny_section(**option)).train(), CrossEntropy(0.1))
    if with_kernels:
        use(objective)
    return objective


def trained(
    objective: Objective, passes: Sequence[Pass], *, is_packed: bool, device: torch.device = CPU
) -> list[Tensor]:
    """Sums over all passes, and gradients, per token; on the CPU."""
    sums = []
    for micro_batches, seeds in passes:
        batch = laid_out(micro_batches, seeds, device, is_packed=is_packed)
        out = objective(batch.source, batch.target_input, batch.target_output, 1.0, batch.layout)
        (out.loss_sum / TOKENS).backward()
        sums.append(torch.stack([x.detach().cpu() for x in out]) / TOKENS)
    return [torch.stack(sums).sum(0), *(p.grad.cpu() for p in objective.parameters() if p.grad is not None)]


def check(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@each_option
def test_loss_and_gradients(option: dict[str, Any]) -> None:
    """With dropout: padded lane by lane, packed so, and all lanes at once; the latter on a device as well."""
    dropped = {**SHALLOW, **option, **DROPOUTS}
    padded = trained(objective_of(dropped), PADDED, is_packed=False)
    check(trained(objective_of(dropped), PADDED, is_packed=True), padded)
    check(trained(objective_of(dropped), MERGED, is_packed=True), padded)
    check(trained(objective_of(dropped).to(DEVICE), MERGED, is_packed=True, device=DEVICE), padded)


@each_option
def test_those_of_the_plain_model(option: dict[str, Any]) -> None:
    objective = objective_of({**SHALLOW, **option}, with_kernels=False)
    sums = []
    for micro_batch in LANES:
        ids = micro_batch.source, micro_batch.target_input, micro_batch.target_output
        out = objective(*map(torch.from_numpy, ids))
        (out.loss_sum / TOKENS).backward()
        sums.append(torch.stack([x.detach() for x in out]) / TOKENS)
    plain = [torch.stack(sums).sum(0), *(p.grad for p in objective.parameters() if p.grad is not None)]
    check(trained(objective_of({**SHALLOW, **option}), MERGED, is_packed=True), plain)


def masks(passes: Sequence[Pass], *, is_packed: bool) -> dict[str, Tensor]:
    """By dropout, which elements stay, of all tokens that are no padding: (N, F) of zeros and others."""
    objective = objective_of(DROPOUTS)
    found: dict[str, Tensor] = {}
    parts = {n: m for n, m in objective.named_modules() if isinstance(m, CudaDropout) and m.p}
    texts: dict[str, Tensor] = {}

    def note(name: str, out: Tensor) -> None:
        rows = out.flatten(0, -2)[texts[parts[name].side]]
        found[name] = torch.cat([found[name], rows != 0]) if name in found else rows != 0

    for name, part in parts.items():
        part.register_forward_pre_hook(lambda m, args: (torch.ones_like(args[0]),))
        part.register_forward_hook(lambda m, args, out, name=name: note(name, out))
    for micro_batches, seeds in passes:
        batch = laid_out(micro_batches, seeds, CPU, is_packed=is_packed)
        texts = {"source": batch.source.flatten() != 0, "target": batch.target_output.flatten() != 0}
        objective(batch.source, batch.target_input, batch.target_output, 1.0, batch.layout)
    return found


def test_masks_are_equal() -> None:
    padded = masks(PADDED, is_packed=False)
    packed = masks(PADDED, is_packed=True)
    merged = masks(MERGED, is_packed=True)
    assert len(padded) > 10
    for name, mask in padded.items():
        assert torch.equal(mask, packed[name]), name
        assert torch.equal(mask, merged[name]), name
        assert 0.6 < mask.float().mean() < 0.8
    assert len({bytes(m[:20, :12].numpy().tobytes()) for m in padded.values()}) == len(padded), "each has its own"


def test_no_padding_is_computed() -> None:
    objective = objective_of({})
    rows: set[int] = set()
    for part in objective.modules():
        if not list(part.children()):
            part.register_forward_hook(lambda m, args, out: rows.add(args[0].shape[:-1].numel()))
    batch = laid_out(LANES, SEEDS, CPU, is_packed=True)
    objective(batch.source, batch.target_input, batch.target_output, 1.0, batch.layout)
    tokens = {sum(getattr(m, f"num_{side}_tokens") for m in LANES) for side in ("source", "target")}
    assert tokens <= rows <= {1, *tokens}, "ids are (1, N)"


def test_what_is_not_packed_says_why() -> None:
    bf16 = torch.bfloat16
    assert objective_of({}).layout_kind(CPU, bf16) == ("packed", "")
    assert objective_of({}, with_kernels=False).layout_kind(CPU, bf16) == ("none", "")
    kind, why = objective_of({"attention_dropout": 0.1}).layout_kind(CPU, bf16)
    assert (kind, "dropout" in why) == ("padded", True)
    gpu = torch.device("cuda", 0)
    kind, why = objective_of({}).layout_kind(gpu, torch.float32)
    assert (kind, "bf16" in why) == ("padded", True)
    kind, why = objective_of({}).layout_kind(gpu, bf16)
    assert (kind, "4 wide" in why) == ("padded", True)

    class Foreign(torch.nn.Identity):
        """Of a plugin."""

    objective = objective_of({})
    objective.model.encoder.norm = Foreign()
    assert objective.layout_kind(CPU, bf16) == ("padded", "Foreign may mix rows")


def test_what_is_too_long_is_refused() -> None:
    objective = objective_of({"max_positions": 4})
    with pytest.raises(ValueError, match="max_positions=4"):
        trained(objective, PADDED, is_packed=True)


@pytest.mark.parametrize("is_causal", [False, True])
def test_a_device_calls_torchs_kernel(is_causal: bool) -> None:
    """In half precision; with the sums and gradients of the plain way."""
    batch = laid_out(LANES, SEEDS, CPU, is_packed=True)
    there = laid_out(LANES, SEEDS, DEVICE, is_packed=True)
    assert batch.layout is not None
    assert there.layout is not None
    queries, keys = batch.layout.target, batch.layout.target if is_causal else batch.layout.source
    sizes = [len(queries.places), len(keys.places), len(keys.places)]
    q, k, v = (torch.randn(n, 2, 8, dtype=torch.bfloat16, requires_grad=True) for n in sizes)
    q_there, k_there, v_there = (x.detach().to(DEVICE).requires_grad_() for x in (q, k, v))
    out = packed_attention(q, k, v, queries, keys, is_causal=is_causal, scale=0.3)
    queries, keys = there.layout.target, there.layout.target if is_causal else there.layout.source
    with metered() as meter:
        found = packed_attention(q_there, k_there, v_there, queries, keys, is_causal=is_causal, scale=0.3)
        torch.autograd.backward(found, torch.ones_like(found))
    assert meter.num_kernels == 1 + 3 + 1, meter.by_operator()
    assert not meter.waits
    torch.autograd.backward(out, torch.ones_like(out))
    pairs = zip([found, q_there.grad, k_there.grad, v_there.grad], [out, q.grad, k.grad, v.grad], strict=True)
    for mine, theirs in pairs:
        assert mine is not None
        assert theirs is not None
        torch.testing.assert_close(mine.detach().cpu().float(), theirs.float(), rtol=0.02, atol=0.02)


def test_search_is_that_of_the_plain_model() -> None:
    """Nobody tells it where tokens stand."""
    section = tiny_section(num_heads=4, num_kv_heads=2, positions="rotary", head_width=4)
    sources = torch.from_numpy(LANES[2].source)
    model, plain = tiny_model(section), tiny_model(section)
    use(model)
    for beam in (1, 4):
        search_section = SearchSection(beam=beam, max_length_extra=3)
        found, expected = (search(m, sources, search_section, n_best=beam) for m in (model, plain))
        for one, other in zip(found, expected, strict=True):
            assert [h.ids for h in one] == [h.ids for h in other]
            assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-4)


@pytest.mark.parametrize(
    ("capability", "width", "reason"),
    [
        ((9, 0), 64, None),
        ((8, 9), 192, None),
        ((8, 9), 200, "no backward pass"),
        ((12, 0), 224, "no backward pass"),
        ((8, 9), 256, None),
        ((9, 0), 200, None),
        ((7, 5), 64, "capability 8.0"),
        ((9, 0), 60, "multiple of 8"),
    ],
)
def test_cards_and_heads_without_it(
    capability: tuple[int, int], width: int, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    found = attention.why_not_varlen(torch.device("cuda", 0), torch.bfloat16, width)
    assert found is None if reason is None else reason in (found or "")
