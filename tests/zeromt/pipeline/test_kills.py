"""The graph of eleven steps: killed at random moments it makes the same corpora and models, and nothing twice."""

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from tests.conftest import descendants
from tests.launcher.conftest import environment
from tests.zeromt.pipeline import graph
from tests.zeromt.pipeline.conftest import Run, begun, command
from zeromt.pipeline.keys import plan
from zeromt.pipeline.recipe import Pipeline

KILLS = 10


def results(folder: Path) -> dict[str, str]:
    """The digests of all results but the scores, which say how long they took."""
    given = {name: str(folder / "out/toy" / name) for name in graph.steps() if name != "scores"}
    steps = {name: {"use": path} for name, path in given.items()}
    steps["all"] = {"run": f"echo {' '.join(f'{{{name}}}' for name in given)}"}
    file = folder / "results.yaml"
    file.write_text(yaml.safe_dump({"output": str(folder), "steps": steps}, sort_keys=False))
    return dict(plan(Pipeline.read(str(file)))["all"].record.material["inputs"])


def kill(driver: "subprocess.Popen[bytes]", *, all_at_once: bool) -> None:
    """Kill a driver and its group, and at will whatever it has started."""
    for pid in descendants(driver.pid) if all_at_once else []:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_graph_and_ten_kills(tmp_path: Path, run: Run) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
        graph.write(folder)
    begin = time.monotonic()
    assert len(begun(run(whole, "toy.yaml"))) == 11
    seconds = time.monotonic() - begin
    moments = random.Random(55)
    for number in range(KILLS):
        driver = subprocess.Popen(command("toy.yaml"), cwd=killed, env=environment(), start_new_session=True)
        try:
            driver.wait(moments.uniform(0.02, 2 / KILLS) * seconds)
        except subprocess.TimeoutExpired:
            kill(driver, all_at_once=number % 2 == 0)
    run(killed, "toy.yaml")
    assert results(killed) == results(whole)
