"""Components: their fields are checked like ours, wherever they come from; unknown kinds."""

import dataclasses
from pathlib import Path

import pytest

from configs import load_run
from configs.components import kinds
from tests.conftest import Command, ask_python, install_plugin, zeromt

WSD = '''
"""A schedule of somebody else's, in one file outside of the repository."""

from typing import Annotated

from pydantic import Field

from configs.components import Schedule, component


@component("schedule", "their_wsd")
class WarmupStableDecay(Schedule):
    """Warm-up, then a constant rate, then a linear decay (Hu et al., 2024)."""

    ends = True
    decay_updates: Annotated[int, Field(gt=0)]

    def factor(self, update, last):
        return min(1.0, (last - update) / self.decay_updates)
'''


@pytest.fixture
def plugin(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that has a package installed with a schedule in it."""
    return install_plugin(tmp_path, "schedules", WSD)


def test_a_schedule_in_one_file_outside(plugin: dict[str, str]) -> None:
    """By an entry point: its fields come from the configuration and are checked, and it is what a run has."""
    code = """
from configs import ConfigError, load_run
from configs.load import dump_run
run = load_run("debug", ["schedule={kind: their_wsd, decay_updates: 10}", "schedule.warmup_updates=2"])
rates = [round(run.schedule.rate(n, peak=1.0, last=60), 3) for n in (1, 2, 30, 55, 60)]
answer = [rates, "kind: their_wsd" in dump_run(run)]
for wrong in ("", ", decay_updates: 0", ", decay: 1"):
    try:
        load_run("debug", [f"schedule={{kind: their_wsd{wrong}}}"])
    except ConfigError as error:
        answer.append([line.partition(":")[0] for line in error.problems])
"""
    assert ask_python(code, variables=plugin) == [
        [0.5, 1.0, 1.0, 0.5, 0.0],
        True,
        ["schedule.decay_updates"],
        ["schedule.decay_updates"],
        ["schedule.decay", "schedule.decay_updates"],
    ]


def test_a_package_that_cannot_be_imported_is_named(plugin: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "their_schedules.py").write_text("import what_is_not_there\n")
    plan = zeromt("plan", "debug", "--nodes", "1", "--gpus-per-node", "1", "--gpu-memory", "8GB")
    done = Command(plan, cwd=tmp_path, variables=plugin).finish()
    assert done.code == 2
    [line] = done.err.splitlines()
    assert line.startswith("zeromt: error: plugin schedules (their_schedules): ")
    assert "what_is_not_there" in line


def test_every_component_is_documented_and_planned_without_torch() -> None:
    """Of a model with each kind of each of its parts, and of each optimizer, loss and schedule too."""
    code = """
import contextlib, dataclasses, io, sys
sys.modules["torch"] = None
import data_pipeline.stream.modifiers.typos  # the first to be imported, and the last of its family
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
