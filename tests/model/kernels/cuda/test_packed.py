"""Padded, packed and merged passes: the same loss, gradients and dropout, for every option of the model."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from data_pipeline.stream.batch import MicroBatch
from model import Objective
from model.kernels.cuda import attention, use, ways
from model.layout import LayoutKind, first_possible
from model.loss import CrossEntropy
from tests.device.pseudo import DEVICE
from tests.flops import flop_counter
from tests.model.kernels.cuda.batches import lane
from tests.model.reference import tiny_model, tiny_section
from tests.model.variants import MODELS
from trainer.engines.layouts import stage

CPU = torch.device("cpu")
LANES = [lane(0, rows=4), lane(1, rows=1), lane(2, rows=6)]
SEEDS = [0x1234_5678_9ABC_DEF0, 77, 2**63 - 1]
each_model = pytest.mark.parametrize("option", MODELS, ids=range(len(MODELS)))
SHALLOW = {"encoder_layers": 1, "decoder_layers": 1}
DROPOUTS = {"dropout": 0.3, "activation_dropout": 0.3}
ALL_DROPOUTS = {**DROPOUTS, "attention_dropout": 0.3}

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
    objective: Objective, passes: Sequence[Pass], *, kind: LayoutKind, device: torch.device = CPU
) -> list[Tensor]:
    """Sums over all passes, and gradients, per token; on the CPU."""
    sums = []
    for micro_batches, seeds in passes:
        batch = stage(micro_batches, seeds, device, kind=kind)()
        out = objective(*batch.arguments())
        (out.loss_sum / TOKENS).backward()
        sums.append(torch.stack([x.detach().cpu() for x in out]) / TOKENS)
    return [torch.stack(sums).sum(0), *(p.grad.cpu() for p in objective.parameters() if p.grad is not None)]


def check(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@each_model
def test_loss_and_gradients(option: dict[str, Any]) -> None:
    """With dropout: padded lane by lane, and all lanes at once, on a device as well.

    There attention, residual and norm are one function, and so are feed-forward layers with ReLU.
    """
    for dropouts in (DROPOUTS, {"dropout": 0.3}):
        dropped = {**SHALLOW, **option, **dropouts}
        padded = trained(objective_of(dropped), PADDED, kind="padded")
        check(trained(objective_of(dropped), MERGED, kind="flash"), padded)
        check(trained(objective_of(dropped).to(DEVICE), MERGED, kind="efficient", device=DEVICE), padded)


FROZEN = {
    "all below": ("source_embedding", "encoder"),
    "projections": ("self_attention", "feed_forward"),
    "output": ("output", "target_embedding"),
    "biases": ("bias",),
}


@pytest.mark.parametrize("parts", FROZEN.values(), ids=FROZEN)
@pytest.mark.parametrize(
    ("where", "option"), [("padded", {}), ("whole", {"residual": "post"}), ("whole", {"activation": "swiglu"})]
)
def test_what_is_frozen_gets_no_gradient(option: dict[str, Any], parts: tuple[str, ...], where: str) -> None:
    """The others get theirs, in fewer products, of which none is of a frozen weight."""
    kind: LayoutKind = "efficient" if where == "whole" else "padded"
    device, passes = (DEVICE, MERGED) if where == "whole" else (CPU, PADDED)
    gradients, flops = [], []
    for names in ((), parts):
        objective = objective_of({**SHALLOW, **option, "tied_embeddings": "decoder", "output_bias": True}).to(device)
        for name, parameter in objective.named_parameters():
            parameter.requires_grad_(not any(part in name for part in names))
        with flop_counter() as counted:
            trained(objective, passes, kind=kind, device=device)
        flops.append(counted.get_total_flops())
        gradients.append({name: p.grad for name, p in objective.named_parameters() if p.grad is not None})
    whole, rest = gradients
    assert rest.keys() == {name for name in whole if not any(part in name for part in parts)}
    for name, gradient in rest.items():
        torch.testing.assert_close(gradient.cpu(), whole[name].cpu())
    assert flops[1] < flops[0] or parts == ("bias",)


@pytest.mark.parametrize("residual", ["pre", "post"])
def test_flash_attention_with_and_without_autograd(residual: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for is_whole in (True, False):
        if not is_whole:
            monkeypatch.setattr(attention, "has_operators", lambda *_: False)
        objective = objective_of({**SHALLOW, "residual": residual, "d_model": 16, "num_heads": 2}).half()
        results.append(trained(objective.to(DEVICE), MERGED, kind="flash", device=DEVICE))
    largest = max(float(x.float().norm()) for x in results[0][1:])
    for one, other in zip(*results, strict=True):
        assert float((one - other).float().norm()) <= 0.03 * max(float(other.float().norm()), 0.05 * largest)


@pytest.mark.parametrize("residual", ["pre", "post"])
def test_layers_that_are_recomputed(residual: str) -> None:
    option = {"residual": residual, **DROPOUTS}
    padded = trained(objective_of(option), PADDED, kind="padded")
    objective = objective_of({**option, "activation_checkpointing": True}).to(DEVICE)
    check(trained(objective, MERGED, kind="flash", device=DEVICE), padded)


@each_model
def test_dropout_of_attention_weights(option: dict[str, Any]) -> None:
    """The same are dropped on any device."""
    dropped = {**SHALLOW, **option, **ALL_DROPOUTS}
    padded = trained(objective_of(dropped), PADDED, kind="padded")
    check(trained(objective_of(dropped).to(DEVICE), PADDED, kind="padded", device=DEVICE), padded)
    kept = trained(objective_of({**dropped, "attention_dropout": 0.0}), PADDED, kind="padded")
    assert not torch.allclose(kept[0], padded[0], rtol=1e-4)


@each_model
def test_those_of_the_plain_model(option: dict[str, Any]) -> None:
    plain = trained(objective_of({**SHALLOW, **option}, with_kernels=False), PADDED, kind="none")
    check(trained(objective_of({**SHALLOW, **option}), MERGED, kind="flash"), plain)


@pytest.mark.parametrize("option", MODELS[:2], ids=range(2))
def test_layers_one_behind_the_other(option: dict[str, Any]) -> None:
    """Two of each stack: the last residual of one goes with the first norm of the next."""
    test_those_of_the_plain_model({**option, "residual": "pre", "encoder_layers": 2, "decoder_layers": 2})


def test_no_padding_is_computed() -> None:
    objective = objective_of({})
    rows: set[int] = set()
    for part in objective.modules():
        if not list(part.children()):
            part.register_forward_hook(lambda m, args, out: rows.add(args[0].shape[:-1].numel()))
    batch = stage(LANES, SEEDS, CPU, kind="flash")()
    objective(*batch.arguments())
    tokens = {sum(getattr(m, f"num_{side}_tokens") for m in LANES) for side in ("source", "target")}
    assert tokens <= rows <= {1, *tokens}, "ids are (1, N)"


def test_what_is_not_packed_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 0))
    half, gpu = torch.float16, torch.device("cuda", 0)
    assert first_possible(objective_of({}).layouts(CPU, half)) == ("flash", "")
    assert objective_of({}, with_kernels=False).layouts(CPU, half) == {"none": ""}
    layouts = objective_of({"attention_dropout": 0.1}).layouts(CPU, half)
    assert (layouts["flash"], layouts["efficient"]) == ("it needs model.attention.dropout: 0",) * 2
    assert first_possible(layouts) == ("padded", "it needs model.attention.dropout: 0")
    layouts = objective_of({}).layouts(gpu, torch.bfloat16)
    assert first_possible(layouts) == (
        "padded",
        "flash: heads are 4 wide; it needs a multiple of 8 up to 256; "
        "efficient: heads are 4 wide; it needs a multiple of 8",
    )
    assert first_possible(objective_of({}).layouts(gpu, torch.float32)) == ("efficient", "")


def test_what_is_too_long_is_refused() -> None:
    objective = objective_of({"max_positions": 4})
    with pytest.raises(ValueError, match="max_positions=4"):
        trained(objective, PADDED, kind="flash")


@pytest.mark.parametrize(
    ("way", "capability", "dtype", "width", "reason"),
    [
        ("flash", (9, 0), torch.bfloat16, 64, ""),
        ("flash", (8, 9), torch.bfloat16, 192, ""),
        ("flash", (8, 9), torch.bfloat16, 200, "no backward pass"),
        ("flash", (12, 0), torch.bfloat16, 224, "no backward pass"),
        ("flash", (8, 9), torch.bfloat16, 256, ""),
        ("flash", (9, 0), torch.bfloat16, 264, "multiple of 8 up to 256"),
        ("flash", (7, 5), torch.float16, 64, "capability 8.0"),
        ("flash", (9, 0), torch.float32, 64, "bf16 or fp16"),
        ("efficient", (7, 5), torch.float16, 64, ""),
        ("efficient", (7, 5), torch.bfloat16, 64, "capability 8.0 or newer in bf16"),
        ("efficient", (9, 0), torch.float32, 60, ""),
        ("efficient", (9, 0), torch.bfloat16, 60, "multiple of 8"),
    ],
)
def test_cards_and_heads_without_it(
    way: LayoutKind,
    capability: tuple[int, int],
    dtype: torch.dtype,
    width: int,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    why = ways.why_not(way, torch.device("cuda", 0), dtype, width)
    assert (reason in why) if reason else not why
