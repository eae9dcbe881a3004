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

    letter: str
    """Of the part that it belongs to, a to e."""
    name: str
    """Of it alone, within all parts."""
    function: str
    """Its full name. It gets `work` (a folder), `device` (cuda or cpu) and the arguments below."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    toy: Mapping[str, Any] = field(default_factory=dict)
    """What differs at toy size."""
    needs: float = 30
    """Seconds: with less left, it is not begun."""
    limit: float = 90
    """Seconds after which it is ended as hung."""


def _updates(
    letter: str,
    name: str,
    run: str,
    settings: Mapping[str, Sequence[str]],
    tokens: int = 16_384,
    needs: float = 30,
    limit: float = 90,
    **more: Any,
) -> Cell:
    """Updates of a shipped run at a size, with several settings, whose names follow the cell's in the tables."""
    tiny = {name: (*words, *TINY) for name, words in settings.items()}
    return Cell(
        letter=letter,
        name=name,
        function=f"{PACKAGE}.updates.measure",
        arguments={"run": run, "tokens": tokens, "vocab": 37_000, "updates": 36, "settings": settings, **more},
        toy={"tokens": 128, "vocab": 100, "updates": 2, "shapes": 1, "settings": tiny},
        needs=needs,
        limit=limit,
    )


def _kernels(*ways: str) -> dict[str, Sequence[str]]:
    """PyTorch alone, our kernels with the attention that a run takes, and with others."""
    chosen = {way: ("engine.kernels=cuda", f"engine.attention={way}") for way in ways}
    return {"plain": ["engine.kernels=plain"], "cuda": ["engine.kernels=cuda"], **chosen}


OURS = {"cuda": ["engine.kernels=cuda"]}


def _cell(letter: str, name: str, function: str, arguments: Any = (), toy: Any = (), **more: float) -> Cell:
    return Cell(
        letter=letter, name=name, function=f"{PACKAGE}.{function}", arguments=dict(arguments), toy=dict(toy), **more
    )


def _attention(rows: int, length: int) -> Cell:
    sizes = {"rows": rows, "length": length, "heads": 8, "width": 64}
    return _cell("b", f"attention {rows} x {length}", "operators.attention", sizes, {"rows": 3, "heads": 2, "width": 8})


PAIRS = {"tokens": 8_192, "vocab": 37_000, "pairs": 40_000, "updates": 30, "warm_up": 10}
TOY_PAIRS = {"tokens": 256, "vocab": 200, "pairs": 500, "updates": 6, "warm_up": 2, "is_tiny": True}


def _stage(setting: str) -> Cell:
    arguments = {"run": "wmt_base", "setting": setting, **PAIRS}
    return _cell("c", f"ZeRO {setting}", "training.stage", arguments, {**TOY_PAIRS, "ranks": 2}, needs=60, limit=150)


def _program(name: str) -> Cell:
    arguments = {"run": "wmt_base", "name": name, **PAIRS, "tokens": 16_384, "updates": 60, "warm_up": 20}
    return _cell("c", f"training by {name}", "training.program", arguments, TOY_PAIRS, needs=60, limit=150)


RESUMED = {"run": "debug", "updates": 10, "settings": ("model.d_model=128", "model.feed_forward.d_ff=256")}
PRESETS = ("modern", "deep_shallow")
TOY_DEMO = ("training.max_updates=4", "schedule.warmup_updates=2", *TINY)


def _decoding(program: str) -> Cell:
    arguments = {"program": program, "sentences": 2_000, "batch": 65_536, "dtype": "bfloat16"}
    toy = {"sentences": 8, "batch": 512, "dtype": "float32", "settings": TOY_DEMO}
    return _cell("d", f"translation by {program}", "demo.decode", arguments, toy, needs=60, limit=240)


def _tests(name: str, file: str, keep: str = "", needs: float = 60) -> Cell:
    arguments = {"file": f"tests/{file}", "keep": keep, "seconds": 280.0}
    return _cell("e", f"tests of {name}", "gpu_tests.run", arguments, needs=needs, limit=300)


CELLS: tuple[Cell, ...] = (
    _cell("a", "machine", "machine.inspect"),
    _cell("a", "kernels", "operators.ours", toy={"small": True}),
    _updates("a", "base 16384", "wmt_base", _kernels("flash", "efficient"), needs=60, limit=180),
    _updates("b", "base 3200", "wmt_base", _kernels(), tokens=3_200, needs=40, limit=120),
    _updates("a", "big 16384", "wmt_big", _kernels(), needs=45, limit=120),
    *(_updates("b", f"operators of {run}", f"wmt_{run}", OURS, operators=20) for run in ("base", "big")),
    _stage("1"),
    *(_updates("b", f"{run} 32768", f"wmt_{run}", OURS, tokens=32_768) for run in ("base", "big")),
    *map(_program, ("plain loop", "transformers")),
    *(_updates("d", f"base {preset}", "wmt_base", {"cuda": (*OURS["cuda"], f"preset={preset}")}) for preset in PRESETS),
    _updates("d", "base compiled", "wmt_base", {"cuda": (*OURS["cuda"], "engine.compile=true")}, needs=120, limit=240),
    _updates("b", "big 3200", "wmt_big", _kernels(), tokens=3_200, needs=45, limit=120),
    _updates("b", "waiting base 3200", "wmt_base", OURS, tokens=3_200, waits=True),
    _cell("b", "host", "host.measure", {"preset": "vaswani_base", "passes": 20}, {"passes": 2}),
    _attention(512, 27),
    _attention(64, 256),
    _cell("b", "norm backward", "operators.norm_backward", {"widths": (512, 1024), "tokens": 16_384}, {"tokens": 64}),
    _cell(
        *("b", "vocabularies", "operators.vocabularies"),
        {"sizes": (8_000, 37_000, 256_206), "tokens": 8_192, "width": 512},
        {"sizes": (50, 100), "tokens": 32, "width": 16},
    ),
    *map(_stage, ("0", "2", "3", "2-offload")),
    _cell("c", "resumed elsewhere", "training.resumed", RESUMED, {"updates": 2, "settings": TINY}, needs=90, limit=200),
    _program("zeromt"),
    _cell("d", "demo", "demo.train", toy={"settings": TOY_DEMO, "sentences": 8}, needs=150, limit=300),
    _decoding("zeromt"),
    _decoding("ctranslate2"),
    _updates("d", "base fp16", "wmt_base", OURS, precision="fp16"),
    _tests("kernels", "benchmarks/test_gpu_kernels.py"),
    _tests("the model", "device/test_model.py"),
    *(
        _tests(f"memory, {p}", "zeromt/planning/test_memory.py", p)
        for p in ("vaswani_base", "vaswani_big", "nllb_600m")
    ),
    _tests("stages", "trainer/engines/test_steps.py", "cuda", needs=120),
)
PARTS = {
    "a": "The machine, the kernels, base and big",
    "b": "Other sizes, the host, and operators alone",
    "c": "ZeRO, checkpoints, and other programs",
    "d": "The demo, translation, and other settings",
    "e": "`make test-gpu`",
}
