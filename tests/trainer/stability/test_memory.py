"""What is settled before update 1: how rows attend, how many lanes are merged, which budgets fit the memory."""

import dataclasses
import resource
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from configs import RunConfig, StreamSection, UserError, load_run
from configs.load import dump_run
from data_pipeline.order.windows import Budget, plan_window
from model.layout import PACKED, LayoutKind
from tests.conftest import Corpus
from tests.forked import Forked
from trainer.ranks.distributed import World
from trainer.runs.layout import CONFIG
from trainer.stability import attention, memory
from trainer.stability.attention import settle_attention
from trainer.stability.memory import _trials, is_out_of_memory, largest_shapes, settle_memory

GPU = torch.device("meta")
"""Stands for one: not the host, and nothing runs on it."""
WHY = "it needs a GPU of compute capability 8.0 or newer"


@pytest.mark.parametrize("multiple", [1, 8])
@pytest.mark.parametrize(("source", "target"), [(512, 512), (512, 300), (200, 900)])
def test_no_micro_batch_is_larger_than_the_largest_shapes(source: int, target: int, multiple: int) -> None:
    def sizes(rows: int, s: int, t: int) -> list[int]:
        """Rows, tokens of each side and of both, and what attention keeps."""
        return [rows, rows * s, rows * t, rows * (s + t), rows * max(s, t) ** 2]

    draw, longest = np.random.default_rng(source + multiple), (60, 90)
    section = StreamSection(source_tokens=source, target_tokens=target, max_rows=40, length_multiple=multiple)
    largest = np.array([sizes(*shape) for shape in largest_shapes(section, longest)])
    assert (largest.max(axis=0)[:3] <= [40, source, target]).all()
    lengths = draw.integers(0, longest, (2000, 2)).astype(np.uint16)
    for s, t in Budget.of(section).padded(lengths).tolist():  # micro-batches as the stream cuts them
        assert (sizes(min(source // s, target // t, 40), s, t) <= largest.max(axis=0)).all()
    section = dataclasses.replace(section, budget="tokens")  # of rows that are packed
    largest = np.array([sizes(*shape) for shape in largest_shapes(section, longest)])
    plan = plan_window(lengths, Budget.of(section), seed=1, place=(0, 0, 0, 0), before=0)
    for number in range(len(plan)):
        s, t = (lengths[plan.micro_batch(number)].astype(int) + 1).sum(axis=0)
        assert (np.array([len(plan.micro_batch(number)), s, t, s + t]) <= largest.max(axis=0)[:4]).all()


def test_memory_that_runs_out_is_told_from_other_errors() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.int8)
    no_memory = torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling")
    others = RuntimeError("mat1 and mat2 shapes cannot be multiplied"), OSError("No space left on device")
    assert all(map(is_out_of_memory, (caught.value, MemoryError(), *no_memory)))
    assert not any(map(is_out_of_memory, others))


@pytest.mark.parametrize(("given", "lanes"), [("auto", [63, 32, 16, 8, 4, 2, 1, 1, 1]), ("50", [50, 1, 1]), ("1", [1])])
def test_lanes_first_and_then_budgets_get_smaller(given: str, lanes: list[int]) -> None:
    """Merged rows are no more than a grid has, and no budget is below the longest pair."""
    stream = ["stream.source_tokens=16384", "stream.target_tokens=8192", "stream.max_rows=1024"]
    config = load_run("debug", [*stream, "stream.length_multiple=8", f"engine.merge_lanes={given}"])
    trials = list(_trials(config, (12000, 6600), 120, is_fitted=given != "1"))
    assert [number for _, number in trials] == lanes
    budgets = [(c.stream.source_tokens, c.stream.target_tokens) for c, _ in trials]
    smaller = [(14745, 7372), (13271, 6635)] if given != "1" else []
    assert budgets == [(16384, 8192)] * (len(lanes) - len(smaller)) + smaller


def fitted(world: World, settings: Sequence[str], shrink: float) -> tuple[int, int | None, str]:
    """As a rank, of which the last may take 60 MB more to settle budgets: the one found, updates made, or a refusal."""
    from trainer import build

    unlimited = resource.getrlimit(resource.RLIMIT_DATA)

    def limited(*arguments: Any) -> RunConfig:
        lines = Path("/proc/self/status").read_text().splitlines()
        taken = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))
        if world.rank == world.size - 1:
            resource.setrlimit(resource.RLIMIT_DATA, (taken + (60 << 20), unlimited[1]))
        try:
            return settle_memory(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, unlimited)

    vars(build)["settle_memory"], vars(memory)["SHRINK"] = limited, shrink
    config = load_run("debug", settings)
    Path(config.folder).mkdir(exist_ok=True)
    try:
        built = build.build(config, world, stop_requested=lambda: False)
    except UserError as error:
        return 0, None, str(error)
    built.fit()
    built.close()
    return built.run.config.stream.source_tokens, built.saver.saved_step, ""


@pytest.mark.parametrize(
    ("given", "shrink", "budget", "refusal"),
    [
        (200_000, 0.016, 3200, ""),
        (256, 0.1, 256, ""),
        (200_000, 0.0001, 0, "stream.source_tokens=200000, stream.target_tokens=200000: out of memory ("),
    ],
)
def test_the_engine_starts_again_with_budgets_that_fit(
    given: int, shrink: float, budget: int, refusal: str, corpus_en_fr: Corpus, forked: Forked, tmp_path: Path
) -> None:
    """Ranks try updates on the real engine, and train with what fits the smallest of them, or end alike.

    Budgets are far too large: with one that nearly fits, memory would run out in a step, where ranks wait.
    """
    small = (f"stream.source_tokens={given}", f"stream.target_tokens={given}", "stream.micro_batches=2")
    limits = (f"output={tmp_path}", "training.max_updates=2", "training.fit_memory=true", "evaluation.max_pairs=2")
    outcomes = forked.ranks(2, fitted, (*corpus_en_fr.overrides, *small, *limits), shrink, cwd=tmp_path)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][:2] == (budget, None if refusal else 2)
    assert refusal in outcomes[0][2]


def without(*kinds: LayoutKind) -> dict[LayoutKind, str]:
    """Layouts of a card that lacks some."""
    return {kind: WHY if kind in kinds else "" for kind in ("flash", "efficient", "padded")}


def settled(
    world: World, layouts: dict[LayoutKind, str], longest: int = 127, *settings: str, kept: Path | None = None
) -> tuple[str, str, str]:
    """Layout, why rows are padded, and what the run keeps; `kept` is the folder of a checkpoint."""
    world.device = GPU
    engine: Any = SimpleNamespace(layouts=layouts, precision="bf16")
    lengths = np.array([[300, 1], *[[5, longest]] * 3, *[[3, 4]] * 1997], dtype=np.uint16)
    config = load_run("debug", ["engine.kernels=cuda", *settings])
    checkpoint: Any = None if kept is None else SimpleNamespace(folder=kept)
    config = settle_attention(config, lengths, engine, world, checkpoint)
    return engine.layout_kind, engine.why_padded, config.engine.attention


@pytest.fixture
def alone() -> Any:
    """A world of one rank."""
    return SimpleNamespace(gather=lambda item: [item])


@pytest.mark.parametrize(
    ("layouts", "longest", "kind", "keeps"),
    [
        (without(), 127, "efficient", "efficient"),
        (without(), 128, "flash", "flash"),
        (without("efficient"), 127, "flash", "flash"),
        (without("flash", "efficient"), 127, "padded", "auto"),
        ({"none": ""}, 127, "none", "auto"),
    ],
)
def test_attention_goes_by_the_lengths_of_nearly_all_rows(
    layouts: dict[LayoutKind, str], longest: int, kind: str, keeps: str, alone: Any
) -> None:
    assert settled(alone, layouts, longest) == (kind, WHY if kind == "padded" else "", keeps)


def test_a_run_keeps_its_attention_unless_that_is_impossible(
    tmp_path: Path, alone: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / CONFIG).write_text(dump_run(load_run("debug", ["engine.attention=flash"])))
    flash, padded = "engine.attention=flash", "engine.attention=padded"
    assert settled(alone, without(), kept=tmp_path)[2] == "flash"
    assert settled(alone, without(), 127, padded, kept=tmp_path) == ("padded", "", "padded")
    assert settled(alone, without("flash"), 127, flash, kept=tmp_path)[2] == "efficient"
    assert f"flash, as before, is impossible here: {WHY}; another is chosen" in caplog.text
    for layouts, why in ((without("flash"), WHY), ({"none": ""}, "engine.kernels is plain")):
        with pytest.raises(UserError, match=rf"engine\.attention: flash is impossible here: {why}; set it to auto"):
            settled(alone, cast(Any, layouts), 127, flash)


def test_what_fails_its_check_on_the_card_is_left_out(monkeypatch: pytest.MonkeyPatch, alone: Any) -> None:
    monkeypatch.setattr(attention, "problem", lambda device, dtype, kind: "off" if kind == "efficient" else "")
    assert settled(alone, without(), 127, "engine.kernels=auto")[0] == "flash"


def on_two_cards(world: World) -> list[str]:
    """As a rank, of which rank 1 alone lacks some layouts."""
    return [settled(world, without(*kinds) if world.rank else without())[0] for kinds in (("efficient",), PACKED)]


def test_ranks_on_cards_of_two_generations_agree(forked: Forked, tmp_path: Path) -> None:
    """Else one would merge lanes and make fewer passes than the other, which waits for it for ever."""
    assert forked.ranks(2, on_two_cards, cwd=tmp_path) == [["flash", "padded"]] * 2
