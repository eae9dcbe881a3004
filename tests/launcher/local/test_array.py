"""`zeromt launch local --array`: parts side by side, their merge, failures and requests to stop."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.local import run_array
from launcher.machine.supervise import Supervisor
from launcher.options.command import InParts
from tests.conftest import Call, is_running
from tests.launcher.conftest import command_line, environment
from tests.waiting import PATIENCE, wait_until

RUN = """if True:
    import os, sys
    sys.executable = sys.argv[1]
    from launcher.local import run_array
    from launcher.machine.supervise import Supervisor
    from launcher.options.command import InParts
    with Supervisor() as supervisor:
        code = run_array(supervisor, InParts(["count", "a b"], 3), os.environ, at_a_time=2)
    sys.exit(code)
"""

FILTER = """
import os, time
from pathlib import Path
from configs.components import DroppingFilter, component


@component("filter", "none")
class NoneOfThem(DroppingFilter):
    '''Drops nothing.'''

    def find(self, sources, targets):
        Path("none.py").write_text("raise ValueError('edited')")
        if Path("wait").exists():
            Path("begun").write_text(f"{os.getpid()}\\n")
            time.sleep(1000)
        return []
"""
ARRAY = ["launch", "local", "--plugins", "none.py", "--array", "2", "--", "prepare", "my.yaml"]


def program(folder: Path, stub: str) -> str:
    """An interpreter that is a script of bash: after its words come the command's."""
    file = folder / "python"
    file.write_text(f"#!/bin/bash\nshift 3\n{stub}\n")
    file.chmod(0o755)
    return str(file)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder with a corpus, and a plugin that its configuration does not name."""
    lines = [f"{n} words of line {n * n % 97}" for n in range(400)]
    for side in ("source", "target"):
        (tmp_path / side).write_text("\n".join(lines) + "\n")
    (tmp_path / "my.yaml").write_text(
        "prepare: {pairs_per_block: 32, train: {source: [source], target: [target]}, tokenizer: {vocab_size: 120}}\n"
    )
    (tmp_path / "none.py").write_text(FILTER)
    return tmp_path


def test_a_corpus_in_parts(call: Call, corpus: Path) -> None:
    """All parts read the plugin that the launch named and read, which the first part changes."""
    launch = command_line([*ARRAY, "prepare.filters=[{kind: none}]", "prepare.output=parts"])
    assert subprocess.run(launch, cwd=corpus, env=environment(), timeout=PATIENCE).returncode == 0
    assert (corpus / "none.py").read_text() == "raise ValueError('edited')"
    assert call("prepare", "my.yaml", "prepare.output=alone").code == 0
    indices = [json.loads((corpus / name / "index.json").read_text()) for name in ("parts", "alone")]
    assert indices[0]["shards"] == indices[1]["shards"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_parts_end_with_the_launcher(corpus: Path, number: signal.Signals) -> None:
    (corpus / "wait").touch()
    child = subprocess.Popen(
        command_line([*ARRAY, "prepare.filters=[{kind: none}]"]),
        cwd=corpus,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    begun = corpus / "begun"
    wait_until(lambda: begun.exists() and begun.read_text().endswith("\n"), "a part")
    child.send_signal(number)
    _, err = child.communicate(timeout=PATIENCE)
    wait_until(lambda: not is_running(int(begun.read_text())), "the end of the part")
    if number == signal.SIGTERM:
        assert child.returncode == 75
        assert "SIGTERM: asking the parts to stop; waiting for them\n" in err


@pytest.mark.parametrize(
    ("fails", "how", "code", "said", "number"),
    [
        ("none", "", 0, "", 4),
        ("2/3", "exit 75", 75, "zeromt: count --part 2/3 ended with exit code 75\n", 2),
        ("2/3", "kill -KILL $$", 1, "zeromt: count --part 2/3 was killed by SIGKILL\n", 2),
        ("--merge", "exit 3", 3, "zeromt: count --merge ended with exit code 3\n", 4),
    ],
)
def test_the_first_failure_is_named_and_the_last(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    fails: str,
    how: str,
    code: int,
    said: str,
    number: int,
) -> None:
    stub = f'echo "$*"; if [[ $3 == {fails} || $2 == {fails} ]]; then {how or "true"}; fi'
    monkeypatch.setattr(sys, "executable", program(tmp_path, stub))
    with Supervisor() as supervisor:
        found = run_array(supervisor, InParts(["count", "a b"], 3), os.environ, at_a_time=1)
    shown = capfd.readouterr()
    begun = [*(f"count --part {n}/3 a b" for n in (1, 2, 3)), "count --merge a b"]
    assert (found, shown.err, shown.out.splitlines()) == (code, said, begun[:number])


def test_all_parts_that_run_are_asked_to_stop(tmp_path: Path) -> None:
    stub = "trap 'echo asked; exit 75' TERM; echo up; for _ in {1..9999}; do sleep 0.05; done"
    command = [sys.executable, "-c", RUN, program(tmp_path, stub)]
    child = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert [child.stdout.readline() for _ in range(2)] == ["up\n"] * 2
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=PATIENCE)
    assert (child.returncode, out) == (75, "asked\nasked\n")
    assert "ended with" not in err
