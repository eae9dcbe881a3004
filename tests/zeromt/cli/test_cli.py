"""The command line: what it refuses, with which exit code."""

from pathlib import Path

import pytest

from tests.conftest import Call, Refused
from zeromt.cli import main as cli
from zeromt.cli.main import main, parse

BAD = [
    *((["translate", ".", f"{option}--"], f"argument {option.rstrip('=')}: '--'") for option in ("--beam=", "-o")),
    (["--frob"], "COMMAND: '--frob'"),
    (["train", "debug", "a\nb"], "override: 'a\\nb'"),
    (["launch", "local", "broken.yaml"], "CONFIG: broken.yaml"),
    *((["prepare", "debug", f"--part={part}"], f"argument --part: '{part}'") for part in ("0/4", "3", "a/b", "1/0")),
    *((["launch", "local", "debug", "--nproc", number], "argument --nproc") for number in ("0", "-2", "abc", "")),
    (["launch", "local", "debug", "--max-restarts", "x"], "argument --max-restarts: 'x'"),
    (["translate", "runs/none"], "argument RUN: 'runs/none'"),
    *(
        (["translate", ".", option, value], f"argument {option}: '{value}'")
        for option, value in (
            ("--top-p", "0"),
            ("--length-penalty-kind", "x"),
            ("--length-penalty", "nan"),
            ("--precision", "half"),
            ("--n-best", "1.5"),
        )
    ),
    (["evaluate", ".", "--source", "-", "--reference", "x"], "argument --source: '-'"),
    *(([*start, "debug", "--reset", "data,data"], "argument --reset") for start in (["train"], ["launch", "local"])),
    (["stop"], "the following arguments are required: RUN"),
    (["stop", "none"], "argument RUN: 'none'"),
    (["status", "broken.yaml"], "argument RUN: 'broken.yaml'"),
    (["inspect"], "the following arguments are required: PATH"),
]


@pytest.mark.parametrize(("arguments", "named"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_bad_input_is_named(arguments: list[str], named: str, tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "broken.yaml").write_text("a: [")
    assert refused(*arguments).startswith(named)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("command", "wrong"),
    [("prepare", "prepare.cleaning.source_scripts=[Lattin]"), ("train", "engine.zero_optimization.overlap_com=true")],
)
def test_settings_are_checked_alone(command: str, wrong: str, call: Call, tmp_path: Path) -> None:
    """By the process that `launch --dry-run` asks, too, which knows torch and DeepSpeed."""
    assert call(command, "debug", "--check").code == 0
    done = call(command, "debug", "--check", wrong)
    assert (done.code, f"zeromt: error: {wrong.partition('=')[0]}: " in done.err) == (2, True), done.err
    assert not list(tmp_path.iterdir())


def test_overrides_stand_anywhere() -> None:
    _, arguments = parse(
        ["launch", "local", "debug", "a.b=1", "--nproc", "2", "c.d=-1", "--max-restarts=3", "e.f={x: 1}"]
    )
    assert arguments == {
        "config": "debug",
        "overrides": ["a.b=1", "c.d=-1", "e.f={x: 1}"],
        "nproc": 2,
        "max_restarts": 3,
        "fresh": False,
        "reset": None,
        "plugins": [],
        "parent": None,
        "dry_run": False,
    }


def test_exit_codes_of_what_happens_inside(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from configs import UserError

    def inspect(outcome: int | BaseException) -> int:
        def stand_in(**_: str) -> int:
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        monkeypatch.setattr(cli, "resolve", lambda _: stand_in)
        return main(["inspect", "."])

    for code in (0, 1, 2, 75):
        assert inspect(code) == code
    assert inspect(KeyboardInterrupt()) == 130
    assert inspect(UserError("a\nb")) == 2
    assert capsys.readouterr().err == "zeromt: error: a\nzeromt: error: b\n"
    assert inspect(ValueError("a bug")) == 1
    assert "Traceback" in capsys.readouterr().err
    assert inspect(BrokenPipeError("of some socket")) == 1
    assert "Traceback" in capsys.readouterr().err
