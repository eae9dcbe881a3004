"""What ranks settle before the first update is the same on all of them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from configs import RunConfig, UserError, load_run
from configs.load import dump_run
from model.layout import LayoutKind
from tests.forked import Forked
from trainer.engines.layout_times import milliseconds, sampled_micro_batches
from trainer.ranks.distributed import World
from trainer.runs.layout import CONFIG
from trainer.stability import attention
from trainer.stability.attention import settle_attention
from trainer.stability.memory import settle_memory

WHY = "it needs a GPU of compute capability 8.0 or newer"
ALL: dict[LayoutKind, str] = dict.fromkeys(("flash", "efficient", "short", "padded"), "")
GPU = torch.device("meta")
"""Stands for one: not the host, and nothing runs on it."""


def engine_with(layouts: dict[LayoutKind, str], device: torch.device = GPU) -> Any:
    return SimpleNamespace(
        layouts=layouts,
        layout_kind="none",
        why_padded="",
        merged_lanes=0,
        device=device,
        precision="bf16",
        try_shapes=lambda _: None,
        would_fit=lambda _: True,
    )


def config_with(*settings: str) -> RunConfig:
    return load_run("debug", ["training.memory_probe=false", "stream.micro_batches=8", *settings])


def datasets() -> Any:
    table = np.array([[4, 5]])
    longest = {"source": 6, "target": 7}
    return [SimpleNamespace(longest=longest.__getitem__, sampled_lengths=lambda _: table.astype(np.uint16))]


def settled(world: World) -> list[tuple[str, str, int, str]]:
    """As a rank, of which rank 1 alone has a card that cannot pack, or not in all ways, and of which times differ.

    Layout, why it is padded, lanes of a pass, and what the run keeps.
    """
    world.device = GPU
    vars(attention)["milliseconds"] = lambda section, found, kinds, *_, lanes: {
        kind: float((world.rank + 2 * n) % 3) for n, kind in enumerate(kinds)
    }
    found: list[tuple[str, str, int, str]] = []
    for missing in (("flash", "efficient", "short"), ("flash",), ()):
        layouts = {kind: WHY if kind in missing and world.rank else "" for kind in ALL}
        engine, config = engine_with(layouts), config_with("engine.kernels=cuda")
        config = settle_attention(config, datasets(), engine, world, None)
        settle_memory(config, datasets(), engine, cast(Any, None), world, None)
        found.append((engine.layout_kind, engine.why_padded, engine.merged_lanes, config.engine.attention))
    return found


def test_ranks_on_cards_of_two_generations_agree_on_the_layout(tmp_path: Path, forked: Forked) -> None:
    """Else one would try packed lanes as one, by updates of the engine, while the other is past that already."""
    ranks = forked.ranks(2, settled, cwd=tmp_path)
    assert ranks[0] == ranks[1]
    assert ranks[0][0] == ("padded", WHY, 1, "auto")
    assert [kind for kind, *_ in ranks[0][1:]] == ["efficient", "flash"], "the fastest of rank 0 that both have"
    assert [kept for *_, kept in ranks[0][1:]] == ["efficient", "flash"]


class Alone:
    """A world of one rank."""

    device, size, rank, is_main = GPU, 1, 0, True

    def gather(self, item: Any) -> list[Any]:
        return [item]

    def on_main(self, action: Any) -> Any:
        return action()


def settle(
    layouts: dict[LayoutKind, str], *settings: str, saved: RunConfig | None = None, folder: Path | None = None
) -> tuple[str, str]:
    """Layout and what the run keeps, resumed from a checkpoint with a configuration or new."""
    checkpoint: Any = None
    if saved is not None and folder is not None:
        (folder / CONFIG).write_text(dump_run(saved))
        checkpoint = SimpleNamespace(folder=folder)
    engine, world = engine_with(layouts), cast(Any, Alone())
    config = config_with("engine.kernels=cuda", *settings)
    config = settle_attention(config, datasets(), engine, world, checkpoint)
    return engine.layout_kind, config.engine.attention


def test_a_choice_is_kept_and_made_anew_where_it_is_impossible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    times = {"padded": 4.0, "flash": 3.0, "efficient": 2.0, "short": 1.0}
    asked: list[list[str]] = []

    def timed(_section: Any, _found: Any, kinds: list[str], *_: Any, lanes: int) -> dict[str, float]:
        asked.append(list(kinds))
        assert lanes == 8
        return {kind: times[kind] for kind in kinds}

    monkeypatch.setattr(attention, "milliseconds", timed)
    caplog.set_level("INFO")
    for lanes in ("auto", "20"):  # no more than a rank has
        assert settle(ALL, f"engine.merge_lanes={lanes}") == ("short", "short")
    assert "short 1.00, efficient 2.00, flash 3.00, padded 4.00" in caplog.text
    kept = config_with("engine.kernels=cuda", "engine.attention=flash")
    assert settle(ALL, saved=kept, folder=tmp_path) == ("flash", "flash")
    assert settle(ALL, "engine.attention=padded", saved=kept, folder=tmp_path) == ("padded", "padded")
    assert len(asked) == 2
    older: dict[LayoutKind, str] = {**ALL, "flash": WHY}
    for settings in ((), ("engine.attention=flash",)):
        caplog.clear()
        assert settle(older, *settings, saved=kept, folder=tmp_path) == ("short", "short")
        assert f"flash, as before, is impossible here: {WHY}; another is chosen" in caplog.text
    with pytest.raises(UserError, match=r"engine\.attention: flash is impossible here: "):
        settle(older, "engine.attention=flash")
    with pytest.raises(UserError, match=r"short is impossible here: engine\.kernels is plain"):
        settle({"none": ""}, "engine.attention=short")
    assert asked[2:] == [["efficient", "short", "padded"]] * 2
    assert settle(ALL, "training.deterministic=true") == ("flash", "auto")
    assert settle({**older, "efficient": WHY, "short": WHY}) == ("padded", "auto")


def test_what_fails_its_check_is_left_out(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(attention, "problem", lambda device, dtype, kind: "it is off" if kind == "short" else "")
    monkeypatch.setattr(attention, "milliseconds", lambda section, found, kinds, *_, lanes: dict.fromkeys(kinds, 1.0))
    engine = engine_with(ALL)
    settle_attention(config_with(), datasets(), engine, cast(Any, Alone()), None)
    assert engine.layout_kind == "flash"
    assert "not short, which failed its check on this card (it is off)" in caplog.text


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_layouts_are_timed_on_the_streams_micro_batches(dropout: float, caplog: pytest.LogCaptureFixture) -> None:
    budgets = "stream.source_tokens=48", "stream.target_tokens=48", "prepare.max_pieces=40"
    config = config_with(*budgets, f"model.attention.dropout={dropout}")
    table = np.array([[n % 9 + 1, n % 5 + 1] for n in range(60)] + [[90, 1]], dtype=np.uint16)
    dataset: Any = SimpleNamespace(sampled_lengths=lambda _: table)
    found = sampled_micro_batches([dataset], config.stream, seed=1)
    longest = [max(m.source.shape[1], m.target_output.shape[1]) for m in found]
    assert longest == sorted(longest), "the longest pair fits no micro-batch"
    assert longest[0] < longest[-1] <= 48
    kinds: list[LayoutKind] = ["padded", "short"] if dropout else ["padded", "flash", "short"]
    times = milliseconds(config.model, found, kinds, torch.device("cpu"), torch.float32, lanes=3)
    assert list(times) == kinds
    assert not caplog.records
    assert milliseconds(config.model, [], kinds, torch.device("cpu"), torch.float32, lanes=3) == {}
