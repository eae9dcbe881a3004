"""Which steps run and why, what becomes of results, failures, kills and requests to stop."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.conftest import Call, Start
from tests.waiting import wait_until
from tests.zeromt.pipeline.conftest import STEPS, Run, begun, command, write


def test_only_what_would_be_another_result_is_made(folder: Path, run: Run) -> None:
    assert begun(run(folder)) == ["upper", "head", "both"]
    assert (folder / "out/my/both").read_text() == "A\nB\nC\nA\nB\n"
    os.utime(folder / "in.txt")
    (folder / "my.yaml").write_text(f"# a comment\n{(folder / 'my.yaml').read_text()}")
    moved = folder.rename(folder.with_name("moved"))
    assert run(moved).out.startswith("out/my: 0 of 3 steps were run; all are done\n")
    (moved / "in.txt").write_text("a\nb\nd\n")
    dry = run(moved, "my.yaml", "--dry-run").out.splitlines()
    assert dry[:3] == [
        "upper runs: text has changed <- text",
        "head  runs: upper has changed <- upper",
        "both  runs: head has changed; upper has changed <- head, upper",
    ]
    assert [line.partition(":")[0] for line in begun(run(moved))] == ["upper", "head", "both"]
    (moved / "out/my/head").unlink()
    assert begun(run(moved)) == ["head: out/my/head is not there"]


def test_settings_count(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run(folder)
    assert begun(run(folder, "my.yaml", "settings.n=1")) == ["head: command has changed", "both: head has changed"]
    assert (folder / "out/my/both").read_text() == "A\nB\nC\nA\n"
    (aside,) = (folder / "out/my/.pipeline/old").glob("both.replaced-*")
    assert aside.read_text() == "A\nB\nC\nA\nB\n"
    monkeypatch.setenv("SEEN", "2")
    assert begun(run(folder, "my.yaml", "settings.n=1"))[0] == "upper: a variable has changed"


def test_a_failed_step_keeps_its_log_and_nothing_follows(folder: Path, run: Run) -> None:
    write(folder, {**STEPS, "head": {"run": ["bash", "-c", "echo said; echo why >&2; exit 3"]}})
    failed = run(folder, code=1)
    assert begun(failed) == ["upper", "head"]
    assert "error: step head failed with exit code 3" in failed.err
    assert "head | why\n" in failed.err
    assert "`zeromt pipeline my.yaml` continues from there" in failed.err
    write(folder, STEPS)
    assert [line.partition(":")[0] for line in begun(run(folder))] == ["head", "both"]
    write(folder, {**STEPS, "both": {"run": "no-such-program"}})
    assert "both | zeromt: error: 'no-such-program' cannot be started" in run(folder, code=2).err
    write(folder, {**STEPS, "both": {"run": "true"}})
    assert "error: step both left nothing at out/my/both" in run(folder, code=1).err


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ({"a": {"run": "cat {text}"}}, "inputs.text: 'none.txt': "),
        (
            {"a": {"use": "/none"}, "b": {"run": "cat {a}"}},
            "steps.a.use: '/none': ",
        ),
        ({"a": {"run": "cat my.yaml"}}, "steps.a: 'my.yaml': is not an input, so its content would not count"),
        ({"a": {"run": "zeromt train {config}", "config": {"optimizer": {"lr": 0}}}}, "steps.a: optimizer.lr: 0"),
        ({"a": {"run": "zeromt train debug optimizer.lr=0"}}, "steps.a: optimizer.lr: 0"),
    ],
)
def test_what_is_wrong_is_refused_before_the_first_step(
    folder: Path, run: Run, steps: dict[str, object], said: str
) -> None:
    inputs = {"text": "none.txt"} if "inputs" in said else {}
    write(folder, {"upper": {"run": "true"}, **steps}, inputs=inputs)
    refused = run(folder, code=2)
    assert f"zeromt: error: {said}" in refused.err
    assert not (folder / "out").exists()


WAITING = {"run": ["bash", "-c", "trap 'exit 75' TERM; touch {output}.up; for _ in {{1..9999}}; do sleep 0.05; done"]}


def test_a_request_to_stop_and_a_second_driver(folder: Path, run: Run, start: Start) -> None:
    write(folder, {"long": WAITING, "after": {"run": "cat {long}", "stdout": "{output}"}})
    driver = start(*command(), cwd=folder)
    wait_until((folder / "out/my/long.up").exists, "the step")
    second = run(folder, code=2)
    assert "PIPELINE: out/my is driven by another process" in second.err
    driver.process.send_signal(signal.SIGTERM)
    done = driver.finish()
    assert done.code == 75
    assert "stopped; `zeromt pipeline my.yaml` continues from here" in done.err
    write(folder, {"long": {"run": "touch {output}"}, "after": {"run": "cat {long}", "stdout": "{output}"}})
    assert [line.partition(":")[0] for line in begun(run(folder))] == ["long", "after"]


def test_a_killed_drivers_step_ends_before_it_is_begun_again(folder: Path, run: Run, start: Start) -> None:
    """As a run that saves does: two of it would write the same folder."""
    script = "trap 'sleep 1; echo end >> {folder}/log; exit 75' TERM; echo begin >> {folder}/log; touch {folder}/up; "
    script += "[[ -e {folder}/second ]] && touch {output} && exit 0; for _ in {{1..9999}}; do sleep 0.05; done"
    write(folder, {"long": {"run": ["bash", "-c", script]}})
    driver = start(*command(), cwd=folder)
    wait_until((folder / "out/my/up").exists, "the step")
    driver.process.kill()
    driver.finish()
    (folder / "out/my/second").touch()
    assert begun(run(folder)) == ["long: was not finished"]
    assert (folder / "out/my/log").read_text().split() == ["begin", "end", "begin"]


def test_status_of_each_step(folder: Path, run: Run, call: Call) -> None:
    write(folder, {**STEPS, "head": {"run": "false"}, "given": {"use": "in.txt"}})
    run(folder, code=1)
    shown = call("status", "out/my", cwd=folder).out.splitlines()
    assert shown[0] == "out/my: 2 of 4 steps are done"
    assert [line.split()[:2] for line in shown[1:]] == [
        ["upper", "done"],
        ["head", "failed,"],
        ["both", "waiting,"],
        ["given", "given"],
    ]
    assert "exit code 1, see out/my/.pipeline/head.log" in shown[2]


def test_where_nothing_is_known_of_a_result_it_is_put_aside(folder: Path, run: Run) -> None:
    run(folder)
    shutil.rmtree(folder / "out/my/.pipeline")
    run(folder)
    (aside,) = (folder / "out/my/.pipeline/old").glob("upper.replaced-*")
    assert aside.read_text() == "A\nB\nC\n"
