"""The cells of the report card, in the order in which they run: the first nine minutes settle what is most in doubt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PACKAGE = "benchmarks.device.report_card"
TINY = (
    "model.d_model=32",
    "model.attention.num_heads=2",
    "model.feed_forward.d_ff=64",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
)


@dataclass(kw_only=True, frozen=True, slots=True)
class Cell:
    """One measurement, which a process of its own makes."""

    function: str
    """In this package. It gets `work` (a folder), `device` (cuda or cpu) and the arguments below, and returns `rows` of
    a table, or why it was `skipped`."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    toy: Mapping[str, Any] = field(default_factory=dict)
    """What differs at toy size."""
    needs: float = 30
    """Seconds: with less left, it is not begun."""
    limit: float = 90
    """Seconds after which it is ended as hung."""


def _updates(run: str, settings: Mapping[str, Sequence[str]], tokens: int, *, precision: str = "bf16") -> Cell:
    """Updates of a shipped run at a size, with several settings."""
    tiny = {name: (*words, *TINY) for name, words in settings.items()}
    return Cell(
        function="updates.measure",
        arguments={"run": run, "tokens": tokens, "updates": 36, "settings": settings, "precision": precision},
        toy={"tokens": 128, "vocab": 100, "updates": 2, "shapes": 1, "settings": tiny},
        needs=15 + 15 * len(settings),
        limit=240,
    )


OURS: dict[str, tuple[str, ...]] = {"cuda": ("engine.kernels=cuda",)}
BOTH: dict[str, tuple[str, ...]] = {"plain": ("engine.kernels=plain",), **OURS}
"""PyTorch alone, and our kernels with the attention that a run takes."""
WAYS: dict[str, tuple[str, ...]] = {
    way: ("engine.kernels=cuda", f"engine.attention={way}") for way in ("flash", "efficient")
}
PAIRS = {"tokens": 8_192, "vocab": 37_000, "pairs": 40_000, "updates": 30, "warm_up": 10}
TOY_PAIRS = {"tokens": 256, "vocab": 200, "pairs": 500, "updates": 6, "warm_up": 2, "is_tiny": True}
TOY_DEMO = ("training.max_updates=4", "schedule.warmup_updates=2", *TINY)


def _preset(name: str) -> Cell:
    return _updates("wmt_base", {"cuda": (*OURS["cuda"], f"preset={name}")}, 16_384)


def _stage(setting: str) -> Cell:
    arguments = {"run": "wmt_base", "setting": setting, **PAIRS}
    return Cell(function="training.stage", arguments=arguments, toy={**TOY_PAIRS, "ranks": 2}, needs=60, limit=150)


def _program(name: str) -> Cell:
    arguments = {"run": "wmt_base", "name": name, **PAIRS, "tokens": 16_384, "updates": 60, "warm_up": 20}
    return Cell(function="training.program", arguments=arguments, toy=TOY_PAIRS, needs=60, limit=150)


def _decoding(program: str) -> Cell:
    arguments = {"program": program, "sentences": 2_000, "batch": 65_536, "dtype": "bfloat16"}
    toy = {"sentences": 8, "batch": 512, "dtype": "float32", "settings": TOY_DEMO}
    return Cell(function="demo.decode", arguments=arguments, toy=toy, needs=60, limit=240)


def _tests(file: str, keep: str = "") -> Cell:
    arguments = {"file": f"tests/{file}", "keep": keep}
    return Cell(function="machine.run_tests", arguments=arguments, needs=60, limit=300)


CELLS: dict[str, Cell] = {
    "machine": Cell(function="machine.inspect"),
    "kernels": Cell(function="updates.kernels_alone", toy={"small": True}),
    "base 16384": _updates("wmt_base", BOTH | WAYS, 16_384),
    "base 3200": _updates("wmt_base", BOTH, 3_200),
    "big 16384": _updates("wmt_big", BOTH, 16_384),
    "ZeRO 1": _stage("1"),
    "base 32768": _updates("wmt_base", OURS, 32_768),
    "big 32768": _updates("wmt_big", OURS, 32_768),
    "training by plain loop": _program("plain loop"),
    "training by transformers": _program("transformers"),
    "training by zeromt": _program("zeromt"),
    "base modern": _preset("modern"),
    "base deep_shallow": _preset("deep_shallow"),
    "big 3200": _updates("wmt_big", BOTH, 3_200),
    **{f"ZeRO {setting}": _stage(setting) for setting in ("0", "2", "3", "2-offload")},
    "demo": Cell(function="demo.train", toy={"settings": TOY_DEMO, "sentences": 8}, needs=150, limit=300),
    "translation by zeromt": _decoding("zeromt"),
    "translation by ctranslate2": _decoding("ctranslate2"),
    "base fp16": _updates("wmt_base", OURS, 16_384, precision="fp16"),
    "tests of kernels": _tests("benchmarks/test_gpu_kernels.py"),
    "tests of the model": _tests("device/test_model.py"),
    **{f"tests of memory, {p}": _tests("zeromt/planning/test_memory.py", p) for p in ("base", "big", "nllb_600m")},
    "tests of stages": _tests("trainer/engines/test_steps.py", "cuda"),
}
