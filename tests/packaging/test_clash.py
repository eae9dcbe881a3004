"""A user's own `configs/` or `model.py` that is found in place of this project's packages is named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPO, environment, torchrun
from tests.small import FILES, small_runs
from tests.waiting import PATIENCE


def _run(command: list[str], folder: Path, *paths: Path) -> "subprocess.CompletedProcess[str]":
    variables = environment()
    del variables["PYTHONSAFEPATH"]
    variables["PYTHONPATH"] = os.pathsep.join(map(str, [*paths, REPO]))
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize("name", ["configs/__init__.py", "model.py", "data_pipeline/__init__.py"])
def test_rank_names_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("raise SystemExit('picked up from the current folder')")
    done = _run([sys.executable, "-m", "trainer", "debug"], tmp_path)
    [line] = done.stderr.splitlines()
    package = name.removesuffix("/__init__.py").removesuffix(".py")
    found = path if path.parent == tmp_path else path.parent
    assert line.startswith(f"zeromt: error: {package}: {str(found)!r} is found in place of zeromt's own package")
    assert done.returncode == 2


def test_torchrun_beside_one(tmp_path: Path) -> None:
    (tmp_path / "model.py").touch()
    done = _run(torchrun(2, "-m", "trainer", "debug"), tmp_path)
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("zeromt: error: model: ")]
    assert len(set(said)) == 1, done.stderr
    assert "ImportError" not in done.stderr


def test_folder_without_code_in_it_is_none(tmp_path: Path) -> None:
    """Of YAML files only, where this project's package is on the path: Python itself passes it over."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "mine.yaml").write_text("modle: 1\n")
    done = _run([sys.executable, "-m", "trainer", "configs/mine.yaml"], tmp_path)
    assert (done.returncode, done.stderr) == (2, "zeromt: error: modle: unknown key; did you mean model?\n")


def test_folder_without_code_beside_an_editable_installation(tmp_path: Path) -> None:
    """Its finder is asked after the path, where such a folder is a namespace package."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "lib").mkdir()
    code = (
        "import importlib.machinery, importlib.util, runpy, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        place = {str(REPO)!r} + '/' + name\n"
        "        if name in ('configs', 'data_pipeline', 'model', 'trainer'):\n"
        "            return importlib.util.spec_from_file_location(name, place + '/__init__.py')\n"
        "sys.meta_path.insert(sys.meta_path.index(importlib.machinery.PathFinder) + 1, Finder())\n"
        f"sys.path[:] = ['', *(p for p in sys.path if p not in ('', {str(REPO)!r}))]\n"
        "sys.argv = ['trainer', 'debug']\n"
        "runpy.run_module('trainer', run_name='__main__', alter_sys=True)\n"
    )
    done = _run([sys.executable, "-c", code], tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"zeromt: error: configs: {str(tmp_path / 'configs')!r} is found in place")


@pytest.mark.parametrize("name", ["configs", "data_pipeline", "model"])
def test_command_line_names_it(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").touch()
    code = "import sys; from zeromt.cli.main import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["translate", str(small_runs() / "runs" / "small"), "-i", str(FILES / "corpus" / "in.en")]
    done = _run([sys.executable, "-P", "-c", code, *arguments], REPO, tmp_path)
    [line] = done.stderr.splitlines()
    assert line.startswith(f"zeromt: error: {name}: '{tmp_path / name}.py' is found in place of")
    assert done.returncode == 2


def test_command_line_beside_another_trainer(tmp_path: Path) -> None:
    (tmp_path / "trainer.py").touch()
    done = _run([sys.executable, "-P", "-c", "from zeromt.cli.main import main; main(['--version'])"], REPO, tmp_path)
    [line] = done.stderr.splitlines()
    assert "another `trainer` is found before zeromt's own" in line
    assert done.returncode == 2
