"""Help lists every option and field; hints say what was meant; shells complete what there is."""

import dataclasses
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from configs.components.registry import kinds
from configs.reading import meanings
from launcher.options.parser import Parser
from tests.conftest import Refused
from tests.fuzz.calls import FIELDS
from tests.waiting import PATIENCE
from zeromt.cli.main import COMMANDS, main

PLACES = {
    "schedule": "schedule",
    "optimizer": "optimizer",
    "loss": "loss",
    "model.attention": "attention",
    "model.norm": "norm",
    "prepare.filters": "filter",
    "evaluation.metrics": "metric",
    "evaluation.search.sampler": "sampler",
    "trackers": "tracker",
}
"""Where components are chosen, and of which family."""


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_every_option_and_every_field(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, *name.split(), "--help")
    assert text == shown(capsys, "help", *name.split())
    parser = Parser(prog="test")
    COMMANDS[name].add_arguments(parser)
    for action in parser._actions:
        assert all(option in text for option in action.option_strings)
        assert action.help, action
    takes_settings = any(action.dest == "overrides" or action.metavar == "SETTING" for action in parser._actions)
    assert takes_settings == ("CONFIG" in COMMANDS[name].usage)
    if takes_settings:
        words = {line.split()[0].replace("[N]", "") for line in text.splitlines() if re.match(r"  \w", line)}
        assert sorted(set(FIELDS) - words) == []
        for place, family in PLACES.items():
            own = {f"{place}.{one.name}" for kind in kinds(family).values() for one in dataclasses.fields(kind)}
            assert sorted(own - {f"{place}.kind"} - words) == []


def test_every_field_has_a_meaning_and_its_bounds() -> None:
    assert [one.path for one in meanings.fields() if not one.meaning] == []
    by_path = {(one.path, one.kind): one for one in meanings.fields()}
    assert by_path["engine.zero_stage", None].type == "0 | 1 | 2 | 3"
    assert by_path["evaluation.search.beam", None].type == "whole number, at least 1, at most 256"
    assert by_path["optimizer.beta2", "adamw"].default == "0.98"
    assert "filter" in str(by_path["prepare.filters", None].meaning)


def test_a_new_field_says_its_own() -> None:
    @dataclass
    class Inner:
        """Inside."""

        share: Annotated[float, Field(gt=0, le=0.5)] = 0.25
        """Of
        the whole."""
        way: Literal["a", "b"] | None = None

    @dataclass
    class Outer:
        many: list[Inner] = field(default_factory=list)

    found = list(meanings.fields(Outer))
    assert [(one.path, one.type, one.default, one.meaning) for one in found] == [
        ("many", "list of: section", "[]", "Inside."),
        ("many[N].share", "number, above 0, at most 0.5", "0.25", "Of the whole."),
        ("many[N].way", "a | b or null", "null", ""),
    ]


def test_help_of_a_section_and_of_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "help", "stability").splitlines()[0].startswith("  stability  <section")
    assert "optimizer.lr" in shown(capsys, "help", "lr")
    assert "optimizer" not in shown(capsys, "help", "evaluation.search.beam")
    assert shown(capsys, "help") == shown(capsys, "--help")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("train debug --lr 5e-4", "settings are written section.key=value: optimizer.lr=5e-4"),
        ("train debug --optimizer.lr=5e-4", "optimizer.lr=5e-4"),
        ("train debug --label-smoothing 0.1", "loss.label_smoothing=0.1"),
        ("train debug --max-steps 10", "training.max_updates=10"),
        ("train debug lr=5e-4", "lr: unknown key; did you mean optimizer.lr?"),
        ("train debug d_model=64", "d_model: unknown key; did you mean model.d_model?"),
        ("train debug optimizer.lrr=5e-4", "optimizer.lrr: unknown key; did you mean optimizer.lr?"),
        ("launch local debug --gpus 4", "did you mean --nproc?"),
        ("launch local debug --npro 4", "did you mean --nproc?"),
        ("train debug --gpus 4", "zeromt launch local CONFIG --nproc N"),
        ("launch my.yaml", "on this machine: `zeromt launch local my.yaml`"),
        ("launch --nproc 2 my.yaml", "`zeromt launch local --nproc 2 my.yaml`"),
        ("translate . --beem 2", "did you mean --beam?"),
        ("translate . --zzz", "unrecognized arguments: --zzz; see"),
        ("help nonsense", "COMMAND: 'nonsense' is unknown; give one of init, "),
    ],
)
def test_hints(refused: Refused, arguments: str, said: str) -> None:
    assert said in refused(*arguments.split())


def test_completion_in_bash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "zeromt.bash"
    script.write_text(shown(capsys, "completion", "bash"))

    def completed(*words: str) -> list[str]:
        """What bash offers for the last word, where no program can be started."""
        code = f"""
source {script}
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_shtab_zeromt zeromt "${{@: -1}}" "${{@: -2:1}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
        command = [shutil.which("bash") or "", "-c", code, "bash", *words]
        done = subprocess.run(
            command, env={"PATH": "/nonexistent"}, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.stderr == ""
        return done.stdout.split()

    assert completed("zeromt", "tra") == [name for name in COMMANDS if name.startswith("tra")]
    assert completed("zeromt", "launch", "loc") == ["local"]
    assert completed("zeromt", "launch", "local", "--npr") == ["--nproc"]
    assert completed("zeromt", "train", "debug", "--device", "c") == ["cpu", "cuda"]
    assert completed("zeromt", "train", f"{tmp_path}/ze") == [str(script)]


def test_completion_in_zsh(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "completion", "zsh")
    assert text.startswith("#compdef zeromt")
    assert "--nproc" in text
    if shutil.which("zsh"):
        (tmp_path / "script").write_text(text)
        done = subprocess.run(["zsh", "-n", str(tmp_path / "script")], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
