"""A wheel holds all that its commands need."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.conftest import REPO
from tests.waiting import PATIENCE

PACKAGES = ("configs", "data_pipeline", "launcher", "model", "trainer", "zeromt")
TYPES = (".py", ".yaml", ".sh", ".typed", ".html", ".css", ".js", ".txt")


def test_every_file_of_every_package_is_there(tmp_path: Path) -> None:
    """Built from a copy, so that the checkout gets no `build/`, without asking any index."""
    copy = tmp_path / "copy"
    for name in PACKAGES:
        shutil.copytree(REPO / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPO / name, copy)
    for other in ("tests", "benchmarks", "models"):  # beside the packages, and none of them
        (copy / other).mkdir()
        (copy / other / "__init__.py").touch()
    options = ["--no-deps", "--no-build-isolation", "--no-index", "-w", str(tmp_path)]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, str(copy)], check=True, capture_output=True, timeout=PATIENCE
    )
    [wheel] = tmp_path.glob("zeromt-*.whl")
    files = {path for name in PACKAGES for path in (REPO / name).rglob("*") if path.suffix in TYPES}
    here = {str(path.relative_to(REPO)) for path in files if "__pycache__" not in path.parts}
    assert {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name} == here
