"""Processes that a launcher or a command starts read what it has read."""

from pathlib import Path

import pytest

from configs import load_run
from configs.plugins import PINS, dumps, keep_copies, pins_of, variables
from configs.plugins.pins import Pin
from tests.configs.plugins.halves import HALVES, said
from tests.conftest import ask_python


@pytest.fixture
def pins(folder: Path) -> list[Pin]:
    run = load_run(str(folder / "my.yaml"))
    (folder / "r").mkdir()
    keep_copies(folder / "r", run.plugins)
    return pins_of(run.plugins, folder / "r")


def test_an_edit_is_not_seen(pins: list[Pin], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = str(folder / "my.yaml")
    (folder / "halves.py").write_text("raise ValueError\n")
    monkeypatch.setenv(*variables(config, pins).popitem())
    assert [(p.file, p.sha256) for p in load_run(config).plugins] == [(pin.file, pin.sha256) for pin in pins]
    (folder / "halves.py").unlink()
    assert load_run(config, ["schedule.every=3"]).schedule.kind == "halves"


def test_where_there_is_no_copy_the_file_will_do(
    pins: list[Pin], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = str(folder / "my.yaml")
    monkeypatch.setenv(*variables(config, pins).popitem())
    Path(pins[0].copy).write_text("raise ValueError\n")
    assert load_run(config).schedule.kind == "halves"
    (folder / "halves.py").write_text(HALVES + "\n")
    line = said(config)
    assert line.startswith(f"plugin '{folder}/halves.py': ")
    assert pins[0].copy in line
    assert pins[0].sha256 in line


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"config": "debug"}', '{"config": "debug", "plugins": [1]}'])
def test_what_no_launcher_has_set(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PINS, text)
    assert said("debug").startswith(f"{PINS}: ")


def test_copies_are_written_anew(pins: list[Pin], folder: Path) -> None:
    [copy] = [Path(pin.copy) for pin in pins]
    for spoil in (lambda: copy.write_text("spoilt"), copy.unlink):
        spoil()
        keep_copies(folder / "r", load_run(str(folder / "my.yaml")).plugins)
        assert copy.read_text() == HALVES
    assert list(copy.parent.iterdir()) == [copy]


def test_other_processes_get_the_bytes(folder: Path) -> None:
    """By pickle, with a component in what is sent, whatever has become of the file."""
    run = load_run(str(folder / "my.yaml"))
    content = dumps([run.schedule])
    (folder / "halves.py").unlink()
    code = "import sys; from configs.plugins import loads; answer = loads(bytes.fromhex(sys.argv[1]))[0].every"
    assert ask_python(code, content.hex()) == 5
