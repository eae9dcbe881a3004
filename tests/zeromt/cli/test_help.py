"""Help lists every option and field; hints say what was meant; shells complete what there is."""

import dataclasses
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from configs.components.registry import kinds
from configs.reading import meanings
from launcher.options.parser import Parser
from tests.conftest import Refused, ask_python, environment
from tests.fuzz.calls import FIELDS
from tests.waiting import PATIENCE
from zeromt.cli import search
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
    ("typed", "wanted"),
    [
        ("learning rate", {"optimizer.lr", "schedule", "schedule.warmup_updates"}),
        ("Learning-Rates", {"optimizer.lr"}),  # as people write it
        ("gpu memory", {"plan --gpu-memory", "training.memory_probe", "training.fit_memory"}),
        ("bleu", {"evaluation.metrics", "evaluation.tokenizer", "evaluate"}),
        ("finetune", {"train"}),  # other programs' word for a command
        ("gradient accumulation", {"K", "stream.micro_batches"}),  # the glossary's column of others
        ("muon", {"optimizer.momentum"}),
        ("%", set()),
    ],
)
def test_words_find_names_and_meanings(capsys: pytest.CaptureFixture[str], typed: str, wanted: set[str]) -> None:
    if not wanted:
        assert main(["help", *typed.split()]) == 2
        return
    *_, listed, hint = shown(capsys, "help", *typed.split()).rstrip().split("\n\n")
    lines = listed.splitlines()
    assert wanted <= {re.split("  +", line.strip())[0] for line in lines}
    assert all(len(line) <= 120 for line in lines)
    [name] = re.findall("`zeromt help (.*)`", hint)
    assert shown(capsys, "help", *name.split()) != shown(capsys, "help", *typed.split())


def test_kinds_and_terms_are_told_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert "  optimizer.momentum (muon)  <number, " in shown(capsys, "help", "muon")
    assert shown(capsys, "help", "lane").startswith("  lane: one of the K streams that an epoch is dealt to")
    names = {entry.name for entry in search.entries(COMMANDS, {})}
    assert {"lane", "muon", "plan --gpu", "launch slurm", "optimizer.lr"} <= names
    assert not any("[N]" in name or name.startswith("phases.optimizer") for name in names)


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
        ("help nonsense", "WORD: 'nonsense': no setting, kind, command, option or term has it"),
    ],
)
def test_hints(refused: Refused, arguments: str, said: str) -> None:
    assert said in refused(*arguments.split())


def completed(shell_script: Path, *words: str, folder: Path | None = None) -> list[str]:
    """What bash offers for the last word, where no program can be started; words as bash cuts them, at `=` too."""
    code = f"""
source {shell_script}
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${{#COMP_LINE}}
spec="$(complete -p zeromt)"; spec="${{spec#*-F }}"
"${{spec%% *}}" zeromt "${{@: -1}}" "${{@: -2:1}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    command = [shutil.which("bash") or "", "-c", code, "bash", *words]
    nothing = {"PATH": "/nonexistent", "HOME": str(folder)}
    done = subprocess.run(
        command, cwd=folder, env=nothing, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    file = tmp_path / "zeromt.bash"
    file.write_text(shown(capsys, "completion", "bash"))
    return file


def test_completion_in_bash(script: Path, tmp_path: Path) -> None:
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    assert completed(script, "zeromt", "tra") == ["trace", "train", "translate"]
    assert completed(script, "zeromt", "launch", "loc") == ["local"]
    assert completed(script, "zeromt", "launch", "local", "--npr") == ["--nproc"]
    assert set(completed(script, "zeromt", "train", "debug", "--device", "")) >= {"auto", "cpu", "cuda"}
    assert "--beam" in completed(script, "zeromt", "translate", "runs/my", "--")
    (tmp_path / "my.yaml").touch()
    assert completed(script, "zeromt", "train", f"{tmp_path}/my") == [f"{tmp_path}/my.yaml"]


OFFERED = [
    ("train debug training.max_up", ["training.max_updates="]),
    ("train debug optimizer.lr = 5e-4 training.max_up", ["training.max_updates="]),
    ("train debug engine.device = c", ["cpu", "cuda"]),
    ("train debug engine.device=c", ["engine.device=cpu", "engine.device=cuda"]),  # where words are not cut at =
    ("plan debug optimizer =", ["adafactor", "adamw", "muon"]),
    ("train debug preset = vaswani_b", ["vaswani_base", "vaswani_big"]),
    ("train deb", ["debug"]),
    ("train m", ["multi30k", "my.yaml"]),
    ("pipeline stu", ["student"]),
    ("launch slurm debug --site cp", ["cpu"]),
    ("status ", ["runs", "~a b"]),
    ("stop runs/", ["runs/one", "runs/two"]),
    ("train debug --from runs/o", ["runs/one"]),
    ("batch ~/runs/t", ["~/runs/two"]),
    ("translate runs/one/", ["runs/one/checkpoints"]),
    ("status data/", ["data/none"]),  # no run is below: any folder
]


def test_completion_knows_settings_runs_and_configurations(script: Path, tmp_path: Path) -> None:
    for run in ("runs/one", "runs/one/checkpoints/step-1", "runs/two", "~a b/run"):
        (tmp_path / run).mkdir(parents=True)
        (tmp_path / run / "config.yaml").touch()
    (tmp_path / "data" / "none").mkdir(parents=True)
    (tmp_path / "my.yaml").touch()
    (tmp_path / "my.txt").touch()
    for words, offered in OFFERED:
        assert sorted(completed(script, "zeromt", *words.split(" "), folder=tmp_path)) == offered, words


def test_completion_imports_nothing_heavy() -> None:
    imported = ask_python(
        """
import contextlib, io, sys
from zeromt.cli.main import main
with contextlib.redirect_stdout(io.StringIO()):
    main(["completion", "bash"])
answer = sorted({"torch", "numpy", "deepspeed"} & set(sys.modules))
"""
    )
    assert imported == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_elsewhere(shell: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "zeromt", "completion", shell]
    text = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout
    for name in COMMANDS:
        assert name.split()[-1] in text
    assert "nproc" in text
    if shutil.which(shell):
        (tmp_path / "script").write_text(text)
        done = subprocess.run([shell, "-n", str(tmp_path / "script")], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
