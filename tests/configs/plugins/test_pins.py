"""Processes that a launcher or a command starts read what it has read."""

from pathlib import Path

import pytest

from configs import RunConfig, load_run
from configs.plugins import dumps, keep_copies, variables
from tests.configs.plugins.halves import HALVES, said
from tests.conftest import ask_python


@pytest.fixture
def run(folder: Path) -> RunConfig:
    run = load_run(str(folder / "my.yaml"))
    keep_copies(folder / "r", run.plugins)
    return run


def test_an_edit_is_not_seen(run: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = str(folder / "my.yaml")
    monkeypatch.setenv(*variables(config, run.plugins, folder / "r").popitem())
    (folder / "halves.py").write_text("raise ValueError\n")
    assert [p.sha256 for p in load_run(config).plugins] == [p.sha256 for p in run.plugins]
    (folder / "halves.py").unlink()
    assert load_run(config, ["schedule.every=3"]).schedule.kind == "halves"
    [copy] = (folder / "r" / "plugins").iterdir()
    copy.write_text(HALVES + "\n")
    assert said(config) == f"plugin '{copy}': has been changed since the run was started; start it again"
    copy.unlink()
    assert said(config).startswith(f"ZEROMT_PLUGINS: '{copy}': no such file")


def test_other_processes_get_the_bytes(folder: Path) -> None:
    """By pickle, with a component in what is sent, whatever has become of the file."""
    run = load_run(str(folder / "my.yaml"))
    content = dumps([run.schedule])
    (folder / "halves.py").unlink()
    code = "import sys; from configs.plugins import loads; answer = loads(bytes.fromhex(sys.argv[1]))[0].every"
    assert ask_python(code, content.hex()) == 5
