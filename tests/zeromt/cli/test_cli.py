"""The command line: what it refuses in which words, with which exit code."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Refused, environment
from zeromt.cli import main as cli
from zeromt.cli.main import main, parse

BAD = [
    ([], "COMMAND: none given; give one of init, prepare, score, launch local, train"),
    (["trian"], "COMMAND: 'trian' is unknown; did you mean train?"),
    (["zzz"], "COMMAND: 'zzz' is unknown; give one of init"),
    (["launch"], "COMMAND: 'launch' is incomplete; give one of launch local, launch slurm, launch node"),
    (["launch", "locla", "debug"], "COMMAND: 'launch locla' is unknown; did you mean launch local?"),
    (["--frob"], "COMMAND: '--frob' is unknown"),
    (["train"], "the following arguments are required: CONFIG; see `zeromt train --help`"),
    (["train", "debug", "--frob", "1"], "unrecognized arguments: --frob"),
    (["launch", "local", "debug", "--npro", "2"], "unrecognized arguments: --npro"),
    (["train", "debug", "a\nb"], "override: 'a\\nb'; allowed is section.key=value"),
    (["train", "nope.yaml"], "CONFIG: no such file: 'nope.yaml'; give a YAML file or one of debug"),
    (["train", "broken.yaml"], "CONFIG: broken.yaml: cannot be read"),
    (["launch", "local", "broken.yaml"], "CONFIG: broken.yaml: cannot be read"),
    *(
        (["prepare", "debug", f"--part={part}"], f"argument --part: '{part}'; allowed is I/N with I from 1 to N, such")
        for part in ("0/4", "5/4", "3", "a/b", "-1/4", "1/0", "1/2/3")
    ),
    (["prepare", "debug", "--part", "1/2", "--merge"], "argument --merge: not allowed with argument --part"),
    (["prepare", "debug", "optimizer.lr"], "override: 'optimizer.lr'; allowed is section.key=value"),
    (["launch", "local", "debug", "optimizer.lr=0"], "optimizer.lr: 0; allowed is greater than 0"),
    (["launch", "local", "debug"], "prepare.output: 'data/prepared/debug' holds no index.json"),
    (["launch", "local", "debug", "--nproc", "0"], "argument --nproc: '0'; allowed is a whole number from 1"),
    (["launch", "local", "debug", "--nproc", "-2"], "argument --nproc:"),
    (
        ["launch", "local", "debug", "--nproc", "abc"],
        "argument --nproc: 'abc'; allowed is a whole number from 1",
    ),
    (["launch", "local", "debug", "--nproc"], "argument --nproc: expected one argument"),
    (
        ["launch", "local", "debug", "--max-restarts", "x"],
        "argument --max-restarts: 'x'; allowed is a whole number",
    ),
    (["translate", "runs/none"], "argument RUN: 'runs/none': no such file or folder"),
    (["translate", ".", "-i", "none.txt"], "argument -i/--input: 'none.txt': no such file"),
    (
        ["translate", ".", "-o", "none/out.txt"],
        "--output: 'none/out.txt' cannot be written; give a file in a folder that exists",
    ),
    (["translate", ".", "--beam", "0"], "argument --beam: '0'; allowed is a whole number from 1 to 256"),
    (["translate", ".", "--top-p", "0"], "argument --top-p: '0'; allowed is a finite number above 0 up to 1"),
    (
        ["translate", ".", "--alignment", "-"],
        "argument --alignment: '-' stands for standard output; give a file in a folder",
    ),
    (
        ["translate", ".", "--length-penalty-kind", "x"],
        "argument --length-penalty-kind: 'x'; allowed is gnmt or mean",
    ),
    (
        ["translate", ".", "--length-penalty", "nan"],
        "argument --length-penalty: 'nan'; allowed is a finite number",
    ),
    (
        ["translate", ".", "--precision", "half"],
        "argument --precision: 'half'; allowed is auto or fp32 or bf16 or fp16",
    ),
    (
        ["translate", ".", "--target-language", ""],
        "argument --target-language: ''; allowed is the code of a language, such as fr or fra_Latn",
    ),
    (["translate", ".", "--n-best", "1.5"], "argument --n-best: '1.5'; allowed is a whole number"),
    (["evaluate", ".", "more"], "unrecognized arguments: more"),
    (["evaluate", "."], "RUN: '.' is neither a run's folder nor a checkpoint"),
    (["evaluate", ".", "--source", "-", "--reference", "x"], "argument --source: '-': no such file"),
    (
        ["launch", "local", "debug", "--fresh", "--reset", "data"],
        "argument --reset: not allowed with argument --fresh",
    ),
    *(
        (
            [*start, "debug", "--reset", what],
            f"argument --reset: '{what}'; allowed is data, optimizer or data,optimizer",
        )
        for start in (["train"], ["launch", "local"])
        for what in ("weights", "data,data", "")
    ),
    (
        ["launch", "local", "debug", "engine.zero_optimization.mics_shard_size=2"],
        "engine.zero_optimization.mics_shard_size: DeepSpeed removed it; instead use zero_hpz_partiti",
    ),
    (
        ["train", "debug", "engine.zero_optimization.zero_hpz_size=2"],
        "engine.zero_optimization.zero_hpz_size: unknown key of DeepSpeed; did you mean engine.zero_optimization.zero_",
    ),
    (["stop"], "the following arguments are required: RUN"),
    (["stop", "none"], "argument RUN: 'none': no such folder; give a run's folder"),
    (["stop", "."], "RUN: '.' is not running; its state is empty"),
    (["status", "broken.yaml"], "argument RUN: 'broken.yaml': is a file; give a run's folder"),
    (["inspect"], "the following arguments are required: PATH"),
    (["inspect", "none"], "argument PATH: 'none': no such file or folder"),
]


@pytest.mark.parametrize(("arguments", "expected"), BAD, ids=[" ".join(a) or "nothing" for a, _ in BAD])
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], expected: str, tmp_path: Path, refused: Refused
) -> None:
    (tmp_path / "broken.yaml").write_text("a: [")
    said = refused(*arguments)
    assert said.startswith(expected)
    assert not (tmp_path / "runs").exists()


def test_more_processes_than_lanes(workplace: Path, refused: Refused) -> None:
    assert refused("launch", "local", "debug", "--nproc", "99") == (
        "--nproc: 99 is more than stream.micro_batches=2; allowed is 1 to 2"
    )


def test_overrides_stand_anywhere() -> None:
    _, found = parse(["launch", "local", "debug", "a.b=1", "--nproc", "2", "c.d=-1", "--max-restarts=3", "e.f={x: 1}"])
    assert found == {
        "config": "debug",
        "overrides": ["a.b=1", "c.d=-1", "e.f={x: 1}"],
        "nproc": 2,
        "max_restarts": 3,
        "fresh": False,
        "reset": None,
        "plugins": [],
        "parent": None,
        "array": None,
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


def test_python_dash_m(tmp_path: Path) -> None:
    for arguments, expected in ([["--version"], 0], [["frob"], 2]):
        assert isinstance(arguments, list)
        entry = [sys.executable, "-m", "zeromt", *arguments]
        done = subprocess.run(entry, cwd=tmp_path, env=environment(), capture_output=True, text=True)
        assert done.returncode == expected
