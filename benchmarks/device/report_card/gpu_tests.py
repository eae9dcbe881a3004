"""`make test-gpu`, a file of tests at a time: the outcome of each test."""

import importlib.util
import re
import subprocess
import sys
from typing import Any

from benchmarks.common.child import ROOT, environment
from benchmarks.device.work import Figures

OUTCOME = re.compile(r"^(tests/.+?::.+?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b")
SECONDS = re.compile(r"^([\d.]+)s (?:call|setup|teardown) +(tests/.+)$")
REASON = re.compile(r"^(?:FAILED|ERROR) (tests/.+?) - (.+)$")
SAID = 3000
"""Last characters of the output that are kept: tests print tables."""


def run(*, work: str, device: str, file: str, seconds: float, mark: str = "gpu", keep: str = "") -> Figures:
    """Run a file's tests that carry a mark; what has ended in time is kept.

    Args:
        work, device: not used: tests find their own.
        file: of the tests.
        seconds: after which the tests are ended, below the cell's limit.
        mark: of the tests.
        keep: expression of `pytest -k`.
    """
    if importlib.util.find_spec("pytest") is None:
        return {"skipped": "pytest is not installed"}
    command = [sys.executable, "-m", "pytest", "-v", "-m", mark, "-p", "no:cacheprovider", "--tb=short"]
    command += ["--durations=0", *(["-k", keep] if keep else []), file]
    is_late = False
    try:
        ended = subprocess.run(
            command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds,
            check=False,
        )  # fmt: skip
        said = ended.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as error:
        is_late, said = True, (error.stdout or b"").decode(errors="replace")
    return {"tests": outcomes(said), "is_late": is_late, "said": said[-SAID:]}


def outcomes(said: str) -> list[dict[str, Any]]:
    """Each test that has ended, by the output of `pytest -v --durations=0`: name, outcome, seconds, why it failed."""
    tests: dict[str, dict[str, Any]] = {}
    for line in said.splitlines():
        if match := OUTCOME.match(line):
            tests[match[1]] = {"test": match[1], "outcome": match[2].lower(), "seconds": 0.0, "reason": ""}
        elif (match := SECONDS.match(line)) and match[2] in tests:
            tests[match[2]]["seconds"] += float(match[1])
        elif (match := REASON.match(line)) and match[1] in tests:
            tests[match[1]]["reason"] = match[2]
    return list(tests.values())
