"""`make install` and `make wheels` in a checkout, with a registry of stand-ins; the environments are real."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from installation.project import BUILDING, normalized, pins, requirements
from tests.conftest import REPO
from tests.installation.stub_index import StubIndex, serve
from tests.waiting import PATIENCE

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
OTHER = "3.14" if HERE != "3.14" else "3.13"
SETUP = """
import os
from setuptools import setup
assert (os.environ["DS_BUILD_OPS"], os.environ["DS_ACCELERATOR"]) == ("0", "cpu")
setup(name="deepspeed", version="{version}", py_modules=[])
"""
SMI = "#!/bin/sh\ncase $1 in *driver_version) echo 535.104.05;; *) echo 8.0;; esac\n"
SITE = "torch==2.11.0+cu130\nnumpy==2.5.2\ntqdm\nsetuptools\n"


@dataclass(kw_only=True, frozen=True)
class Checkout:
    """A copy of what installing needs, and a registry."""

    folder: Path
    index: StubIndex

    def make(self, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run make; pip knows the registry alone."""
        pip = {"CONFIG_FILE": os.devnull, "INDEX_URL": self.index.url, "EXTRA_INDEX_URL": "", "FIND_LINKS": ""}
        pip |= {"CONSTRAINT": "", "NO_CACHE_DIR": "1", "RETRIES": "0", "COMPILE": "0"}
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "MAKE"))
        }
        environment |= {f"PIP_{name}": value for name, value in pip.items()} | variables
        command = ["make", "--no-print-directory", *arguments, f"TORCH_INDEX={self.index.torch_url}"]
        if not any(one.startswith("PYTHON=") for one in arguments):
            command.append(f"PYTHON={sys.executable}")
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    def ask(self, code: str) -> str:
        """What a line of Python prints in the environment that was made."""
        command = [str(self.folder / ".venv/bin/python"), "-c", code]
        return subprocess.run(
            command, cwd="/", capture_output=True, text=True, timeout=PATIENCE, check=True
        ).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    folder = tmp_path / "checkout"
    for name in ("installation", "zeromt"):
        shutil.copytree(REPO / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
        shutil.copy(REPO / name, folder)
    (tmp_path / "served").mkdir()
    with serve(tmp_path / "served") as index:
        fill(index)
        yield Checkout(folder=folder, index=index)


def fill(index: StubIndex) -> None:
    """With what zeromt requires, at the versions of constraints.txt; setuptools is the real one."""
    needed = {normalized(re.split(r"[\[<>=;]", one)[0]) for one in [*BUILDING, *requirements("")]}
    versions = {name: pins()[name] for name in needed - {"torch", "deepspeed", "setuptools", "zstandard"}}
    for name, version in versions.items():
        index.wheel(name, version)
    index.installed("setuptools")
    index.source("deepspeed", pins()["deepspeed"], SETUP.format(version=pins()["deepspeed"]))
    # of another Python's requirements and wheels, those for the site's are taken
    index.wheel(
        "pydantic", pins()["pydantic"], (f'new; python_version >= "{OTHER}"', f'old; python_version < "{OTHER}"')
    )
    index.wheel("new", "1.0")
    index.wheel("old", "1.0")
    for version in (HERE, OTHER):
        tag = f"cp{version.replace('.', '')}"
        index.wheel("zstandard", pins()["zstandard"], tag=f"{tag}-{tag}-manylinux2014_x86_64")
    index.wheel("torch", "2.13.0+cu126", files=torch("2.13.0+cu126", "12.6"), place="torch/cu126")
    index.wheel("torch", "2.13.0")
    index.wheel("torch", "2.12.0", files=torch("2.12.0", "13.0"))


def torch(version: str, cuda: str) -> dict[str, str]:
    """What installing asks of it."""
    return {"torch/__init__.py": f"__version__ = {version!r}\nclass version:\n    cuda = {cuda!r}\n"}


def wheels_of(folder: Path) -> set[str]:
    return {normalized(path.name.split("-")[0]) for path in folder.glob("*.whl")}


def test_an_older_driver_gets_the_build_for_cuda_12(checkout: Checkout, tmp_path: Path) -> None:
    """The registry's build is refused before anything is fetched."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "nvidia-smi").write_text(SMI)
    (binaries / "nvidia-smi").chmod(0o755)
    path = f"{binaries}:{os.environ['PATH']}"
    done = checkout.make("install", "CUDA=1", PATH=path)
    assert done.returncode == 2
    assert re.search(r"^make install: CUDA=1 .* driver 535.104.05 .* make install CUDA=12$", done.stderr, re.M)
    assert checkout.index.asked == []
    done = checkout.make("install", PATH=path)
    assert done.returncode == 0, done.stderr
    assert "install: torch 2.13.0+cu126 for CUDA 12.6" in done.stdout
    assert checkout.ask("import torch, zeromt; print(torch.__version__, zeromt.__file__)").startswith("2.13.0+cu126 ")
    done = checkout.make("install", "TORCH=2.12.0", "CUDA=1")  # named, it is done whatever is installed
    assert done.returncode == 0, done.stderr
    assert "install: torch 2.12.0 for CUDA 13.0" in done.stdout


def test_wheels_are_those_that_a_site_with_another_python_lacks(checkout: Checkout) -> None:
    site = checkout.folder / "list.txt"
    site.write_text("torch==2.10.0\n")
    done = checkout.make("wheels", "SITE=list.txt", f"PYTHON_VERSION={OTHER}")
    assert done.returncode == 2
    assert "torch>=2.11" in done.stdout + done.stderr
    assert "can be left out of SITE's list" in done.stderr
    site.write_text(SITE)
    done = checkout.make("wheels", "SITE=list.txt", f"PYTHON_VERSION={OTHER}")
    assert done.returncode == 0, done.stderr
    found = wheels_of(checkout.folder / "wheels")
    assert found >= {"deepspeed", "setuptools", "pydantic", "new", "zstandard"}
    assert not found & {"torch", "numpy", "tqdm", "old"}
    assert [f"cp{OTHER.replace('.', '')}" in path.name for path in checkout.folder.glob("wheels/zstandard*")] == [True]
    last = done.stdout.splitlines()[-2:]
    assert last[0].endswith("taken to be new enough, as SITE's list gives no version: tqdm")
    assert re.fullmatch(rf"wheels: {len(found)} for Python {OTHER} on x86_64, \d\.\d MB, in wheels", last[1])
    done = checkout.make("wheels", "WHEELS=all", "CUDA=12")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in checkout.folder.glob("all/torch-*")] == ["torch-2.13.0+cu126-py3-none-any.whl"]


def test_a_site_s_torch_is_used_and_no_registry_asked(checkout: Checkout, tmp_path: Path) -> None:
    (checkout.folder / "list.txt").write_text(SITE)
    done = checkout.make("wheels", "SITE=list.txt", f"PYTHON_VERSION={HERE}")
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(site)], check=True, timeout=PATIENCE)
    done = checkout.make("install", "TORCH=site", "WHEELS=wheels", f"PYTHON={site}/bin/python")
    assert done.returncode == 2
    assert re.search(r"^make install: TORCH=site, and .* finds no torch", done.stderr, re.M)
    of_site = [
        checkout.index.wheel("torch", "2.11.0+cu130", files=torch("2.11.0+cu130", "13.0"), place="site"),
        checkout.index.wheel("numpy", "2.5.2", place="site"),
        checkout.index.wheel("tqdm", "4.60", place="site"),
    ]
    packages = site / "lib" / f"python{HERE}" / "site-packages"
    for wheel in of_site:
        zipfile.ZipFile(wheel).extractall(packages)
    checkout.index.asked.clear()
    done = checkout.make("install", "TORCH=site", "WHEELS=wheels", f"PYTHON={site}/bin/python")
    assert done.returncode == 2
    assert "tqdm" in done.stderr  # which list.txt did not tell: the site's is too old
    metadata = packages / "tqdm-4.60.dist-info" / "METADATA"
    metadata.write_text("Metadata-Version: 2.1\nName: tqdm\nVersion: 4.66\n")
    done = checkout.make("install", "TORCH=site", "WHEELS=wheels", f"PYTHON={site}/bin/python")
    assert done.returncode == 0, done.stderr
    assert "install: torch 2.11.0+cu130 for CUDA 13.0" in done.stdout
    assert checkout.index.asked == []
    assert checkout.ask("import torch, zeromt; print(torch.__file__)").startswith(str(site))
    names = checkout.ask("import importlib.metadata as m; print(*(d.metadata['Name'] for d in m.distributions()))")
    assert {"deepspeed", "numpy", "pydantic", "zeromt"} <= set(names.split())
