"""A pipeline's file: what it says is checked as a whole before anything runs."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from configs import UserError
from launcher.machine.supervise import Supervisor
from zeromt.pipeline.driver import Driver
from zeromt.pipeline.keys import Record
from zeromt.pipeline.recipe import Pipeline


def read(folder: Path, *overrides: str, **tree: Any) -> Pipeline:
    """A pipeline of these keys."""
    file = folder / "my.yaml"
    file.write_text(yaml.safe_dump(tree, sort_keys=False))
    return Pipeline.read(str(file), overrides)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ({}, "steps: none"),
        ({"a": {}}, "steps.a.run: give a command here, or a path in `use`"),
        ({"a": {"run": "true", "use": "x"}}, "steps.a.run: give a command here, or a path in `use`"),
        ({"a": {"run": " "}}, "steps.a.run: give a command"),
        ({"a": {"run": "true", "part": 2}}, "steps.a.part: unknown key"),
        ({"a": {"run": "cat {b}"}, "b": {"run": "true"}}, "steps.a: {b}: names no input and no step before it"),
        ({"text": {"run": "true"}}, "steps.text: the name is taken"),
        ({"output": {"run": "true"}}, "steps.output: the name is taken"),
        ({"a": {"run": "sort {text}", "parts": 2}}, "parts: allowed for zeromt prepare, translate and score"),
        ({"a": {"run": "cat ${oc.env:HOME}"}}, "steps.a.run: contains ${oc.env:NAME}, but commands are recorded"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, steps: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as refused:
        read(tmp_path, inputs={"text": "in.txt"}, steps=steps)
    assert said in str(refused.value)


def test_references_become_paths_and_needs(tmp_path: Path) -> None:
    pipeline = read(
        tmp_path,
        "settings.n=7",
        name="second",
        output="out",
        settings={"n": 3},
        inputs={"text": "${oc.env:NOT_SET,in.txt}"},
        steps={
            "first": {"run": ["split", "{text}", "a word", 7], "config": {"a": [{"path": "{text}"}, "${oc.env:HOME}"]}},
            "given": {"use": "/models/x"},
            "last": {"run": "cat {first} {{x}} ${settings.n}", "stdout": "{output}"},
            "run": {"run": "zeromt train {config} --from {given}", "config": {"plugins": ["my.py"]}},
            "parts": {"run": "zeromt prepare {config}", "config": {"seed": 1}, "parts": 2},
        },
    )
    needs = {"first": ["text"], "given": [], "last": ["first"], "run": ["given"], "parts": []}
    assert pipeline.needs == needs
    assert pipeline.words("last") == ["cat", "out/second/first", "{x}", "7"]
    assert pipeline.words("first") == ["split", "in.txt", "a word", "7"]
    assert pipeline.config("first") == {"a": [{"path": "${oc.env:NOT_SET,in.txt}"}, "${oc.env:HOME}"]}
    assert pipeline.words("run")[-2:] == ["--from", "/models/x"]
    placed = {"output": "out/second", "name": "run", "plugins": [str(Path("my.py").absolute())]}
    assert pipeline.config("run") == placed
    assert pipeline.config("parts") == {"output": "out/second/.pipeline", "name": "parts", "seed": 1}


def test_what_runs_a_step(tmp_path: Path) -> None:
    """Its parts, one after the other here, as an array on SLURM; with options of `zeromt launch` where that runs it."""
    steps = {
        "trained": {"run": "zeromt train my.yaml seed=2", "launch": "--nproc 1"},
        "parts": {"run": "zeromt score x -m y", "parts": 2},
        "printed": {"run": "zeromt evaluate x", "stdout": "{output}"},
    }
    place = {"kind": "slurm", "site": "cpu", "settings": {"python": "/p"}}
    pipeline = read(tmp_path, steps=steps, place=place, output=str(tmp_path))
    local = read(tmp_path, steps=steps, output=str(tmp_path))
    record = Record(key="key", material={}, begun=0.0, attempt="job")
    here = {name: Driver(local, Supervisor()).commands(name, record) for name in steps}
    assert here == {
        "trained": [["zeromt", "launch", "local", "my.yaml", "--nproc", "1", "seed=2"]],
        "parts": [
            ["zeromt", "score", *share, "x", "-m", "y"] for share in (["--part", "1/2"], ["--part", "2/2"], ["--merge"])
        ],
        "printed": [["zeromt", "evaluate", "x"]],
    }
    launch = ["zeromt", "launch", "slurm", "--wait", "--site", "cpu", "--set", 'python="/p"']
    to = str(tmp_path / "my" / "printed")
    there = {name: Driver(pipeline, Supervisor()).commands(name, record) for name in steps}
    assert there == {
        "trained": [[*launch, "--nproc", "1", "--job-name", "trained.job", "my.yaml", "seed=2"]],
        "parts": [[*launch, "--job-name", "parts.job", "--array", "2", "--", "zeromt", "score", "x", "-m", "y"]],
        "printed": [
            [
                *(*launch, "--job-name", "printed.job", "--", "sh", "-c", 'exec "$@" >"$0"', to),
                *("/p", "-P", "-m", "zeromt", "evaluate", "x"),
            ]
        ],
    }
