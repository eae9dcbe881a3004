"""Components: their fields are checked like ours, wherever they come from; unknown kinds."""

import dataclasses

import pytest

from configs import load_run
from configs.components import kinds
from tests.conftest import ask_python


def test_every_component_is_documented_and_planned() -> None:
    """Of a model with each kind of each of its parts, and of each optimizer, loss and schedule too."""
    code = """
import contextlib, dataclasses, io, sys
import data_pipeline.stream.modifiers.texts  # the first to be imported, and the last of its family
from configs import ModelSection
from configs.components import kinds
from configs.components.registry import FAMILIES
from zeromt.cli.main import main
every = {family: list(kinds(family)) for family in FAMILIES}
for cls in (cls for family in FAMILIES for cls in kinds(family).values()):
    assert cls.__doc__ and not cls.__doc__.startswith(cls.__name__ + "("), cls
parts = [field.name for field in dataclasses.fields(ModelSection) if field.name in FAMILIES]
chosen = [f"model.{part}.kind={kind}" for part in parts for kind in every[part]]
chosen += [f"{part}.kind={kind}" for part in ("loss", "optimizer", "schedule") for kind in every[part]]
codes, whole = {}, ["engine.zero_stage=0"]  # where every optimizer is sound
for setting in chosen:
    with contextlib.redirect_stdout(io.StringIO()):
        codes[setting] = main(
            ["plan", "wmt_base", "--nodes", "1", "--gpus-per-node", "8", "--gpu-memory", "80GB", setting, *whole]
        )
answer = codes, len(parts), sum(map(len, every.values())), every["modifier"]
"""
    codes, num_parts, num_components, modifiers = ask_python(code)
    assert modifiers == list(kinds("modifier"))
    assert modifiers[-1] == "typos"
    assert {setting: code for setting, code in codes.items() if code} == {}
    assert (num_parts, num_components > len(codes) > 20) == (6, True)


@pytest.mark.parametrize("family", ["attention", "feed_forward", "norm", "positions", "residual"])
def test_a_part_that_no_program_has_is_refused_by_name(family: str) -> None:
    """Also one that derives from a part of ours, which other programs have."""
    model = load_run("debug").model
    for kind, part in kinds(family).items():
        derived = type("Derived", (part,), {"programs": frozenset()})
        fields = {field.name for field in dataclasses.fields(part)}
        needed = {"num_heads": 2, "d_ff": 8}
        made = derived(**{name: needed[name] for name in needed.keys() & fields})
        for program in ("huggingface", "ctranslate2"):
            problems = list(made.export_problems(program, model))
            assert problems, (kind, program)
            assert problems[0].startswith(f"{family}.kind: {kind!r}")
