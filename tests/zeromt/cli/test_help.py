"""Help lists every option and field; shells complete what there is."""

import dataclasses
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from configs.components.registry import kinds
from configs.reading import meanings
from launcher.options.parser import Parser
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
    assert set(re.findall(r"^  (--?[a-z-]+)", text, re.MULTILINE)) == {
        action.option_strings[0] for action in parser.arguments if action.option_strings
    }
    assert all(action.help for action in parser.arguments)
    takes_settings = any(action.dest == "overrides" for action in parser.arguments)
    assert takes_settings == ("CONFIG" in COMMANDS[name].usage)
    if takes_settings:
        words = {line.split()[0].replace("[N]", "") for line in text.splitlines() if re.match(r"  \w", line)}
        assert sorted(set(FIELDS) - words) == []
        for place, family in PLACES.items():
            own = {f"{place}.{one.name}" for kind in kinds(family).values() for one in dataclasses.fields(kind)}
            assert sorted(own - {f"{place}.kind"} - words) == []


def test_every_field_has_a_meaning() -> None:
    assert [one.path for one in meanings.fields() if not one.meaning] == []


def test_help_of_a_section_and_of_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "help", "stability").splitlines()[0].startswith("  stability  <section")
    assert "optimizer.lr" in shown(capsys, "help", "lr")
    assert "optimizer" not in shown(capsys, "help", "evaluation.search.beam")
    assert shown(capsys, "help") == shown(capsys, "--help") == shown(capsys)


@pytest.mark.parametrize(
    ("words", "start"),
    [
        ("metric", "  evaluation.metrics  <"),
        ("mix corpora", "  stream.datasets  <"),
        ("Label Smoothing", "  loss.label_smoothing (cross_entropy)  <"),
        ("significance", "zeromt compare: "),
    ],
)
def test_help_searches_commands_and_fields(words: str, start: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert any(line.startswith(start) for line in shown(capsys, "help", *words.split()).splitlines())


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
