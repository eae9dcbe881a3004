"""A wheel that is built here and installed elsewhere holds all that its commands need."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.conftest import REPO
from tests.waiting import PATIENCE

PACKAGES = ("configs", "data_pipeline", "launcher", "model", "trainer", "zeromt")
DATA = ["prepare.output={data}"]
TYPES = (".py", ".yaml", ".sh", ".typed", ".html", ".css", ".js", ".txt")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that the checkout gets no `build/`, without asking any index."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "copy"
    ignored = shutil.ignore_patterns("__pycache__")
    for name in PACKAGES:
        shutil.copytree(REPO / name, copy / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPO / name, copy)
    for other in ("tests", "benchmarks", "models"):  # beside the packages, and none of them
        (copy / other).mkdir()
        (copy / other / "__init__.py").touch()
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "-w", str(folder), str(copy)]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
    [built] = folder.glob("zeromt-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    target = wheel.parent / "target"
    options = ["--quiet", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(wheel)]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
    return target


def test_every_file_of_every_package_is_there(wheel: Path) -> None:
    here = {
        str(path.relative_to(REPO))
        for name in PACKAGES
        for path in (REPO / name).rglob("*")
        if path.suffix in TYPES and "__pycache__" not in path.parts
    }
    found = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert found == here


def test_versions_that_were_tried_are_allowed(wheel: Path) -> None:
    """DeepSpeed has an upper bound, because its insides are patched. torch has none: a site's own is used."""
    archive = zipfile.ZipFile(wheel)
    [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = HeaderParser().parsestr(archive.read(name).decode())
    required = {r.name: r.specifier for r in map(Requirement, metadata.get_all("Requires-Dist") or [])}
    assert [version for version in ("2.10.0", "2.11.0", "2.13.0+cpu", "2.15.0") if version in required["torch"]] == [
        *("2.11.0", "2.13.0+cpu", "2.15.0")
    ]
    assert [version for version in ("0.19.8", "0.20.0") if version in required["deepspeed"]] == ["0.19.8"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--version"], "zeromt 0.3.0"),
        (["prepare", "debug", "--help"], "usage: zeromt prepare"),
        (["plan", "debug", "--nodes", "1", "--gpus-per-node", "1", "--gpu-memory", "80GB"], "parameters"),
        (
            ["launch", "slurm", "debug", "--site", "cpu", "--nodes", "1", "--dry-run", "prepare.output={data}"],
            "#SBATCH",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_commands_run_from_it(installed: Path, tmp_path: Path, arguments: list[str], expected: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "index.json").write_text("{}")
    done = _zeromt(installed, tmp_path, [a.format(data=tmp_path / "data") for a in arguments])
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


def _zeromt(installed: Path, folder: Path, arguments: list[str]) -> "subprocess.CompletedProcess[str]":
    """The installed script, with the checkout nowhere on the path, not even by an editable installation's finder."""
    libraries = sysconfig.get_path("purelib")
    code = (
        "import runpy, sys\n"
        f"sys.path[:0] = [{str(installed)!r}]\n"
        f"sys.path.append({libraries!r})\n"  # after -S: a plain folder, whose .pth files are not read
        f"sys.argv = ['zeromt', *{arguments!r}]\n"
        f"runpy.run_path({str(installed / 'bin' / 'zeromt')!r}, run_name='__main__')\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-S", "-P", "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
