"""`make install` and `make wheels` in a checkout, with a registry of stand-ins; the environments are real."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from installation.project import BUILDING, DEEPSPEED_VARIABLES, normalized, pins, requirements
from tests.conftest import REPO, ask_python, environment
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
SITE = "torch==2.11.0+cu130\nnumpy==2.5.2\nsetuptools\n"


class Checkout:
    """A copy of what installing needs, and registries: folders of wheels with the pages that pip reads (PEP 503)."""

    def __init__(self, root: Path) -> None:
        self.folder, self.registries = root / "checkout", root / "registries"
        for name in ("installation", "zeromt"):
            shutil.copytree(REPO / name, self.folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("Makefile", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
            shutil.copy(REPO / name, self.folder)
        needed = {normalized(re.split(r"[\[<>=;]", one)[0]) for one in [*BUILDING, *requirements("")]}
        for name in needed - {"torch", "deepspeed", "setuptools", "pydantic"}:
            self.wheel(name, pins()[name])
        # of another Python's requirements, those for the site's are taken
        markers = (f"new; python_version >= '{OTHER}'", f"old; python_version < '{OTHER}'")
        self.wheel("pydantic", pins()["pydantic"], requires=markers)
        self.wheel("new", "1.0")
        self.wheel("old", "1.0")
        self.torch("2.13.0+cu126", "12.6", "torch/cu126")
        self.torch("2.13.0", "13.0", "simple")
        real = importlib.metadata.distribution("setuptools")  # it builds
        files: dict[str, str | bytes] = {
            str(path): Path(str(path.locate())).read_bytes()
            for path in real.files or ()
            if not path.parts[0].startswith(("..", "setuptools-")) and path.suffix != ".pyc"
        }
        files[f"setuptools-{real.version}.dist-info/entry_points.txt"] = real.read_text("entry_points.txt") or ""
        self.wheel("setuptools", real.version, files)
        source = root / f"deepspeed-{pins()['deepspeed']}"
        source.mkdir()
        (source / "setup.py").write_text(SETUP.format(version=pins()["deepspeed"]))
        archive = self._page("simple", "deepspeed", f"{source.name}.tar.gz")
        shutil.make_archive(str(archive).removesuffix(".tar.gz"), "gztar", root, source.name)

    def _page(self, place: str, name: str, file: str) -> Path:
        folder = self.registries / place / name
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "index.html").open("a") as page:
            page.write(f'<a href="{file}">{file}</a>\n')
        return folder / file

    def wheel(
        self,
        name: str,
        version: str,
        files: Mapping[str, str | bytes] | None = None,
        *,
        requires: Sequence[str] = (),
        place: str = "simple",
    ) -> Path:
        """Add one to a registry."""
        stem = f"{name.replace('-', '_')}-{version}"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        metadata += "".join(f"Requires-Dist: {one}\n" for one in requires)
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        info = {
            f"{stem}.dist-info/{key}": text for key, text in (("METADATA", metadata), ("WHEEL", tags), ("RECORD", ""))
        }
        path = self._page(place, normalized(name), f"{stem}-py3-none-any.whl")
        with zipfile.ZipFile(path, "w") as wheel:
            for inside, content in {**(files or {}), **info}.items():
                wheel.writestr(inside, content)
        return path

    def torch(self, version: str, cuda: str, place: str) -> Path:
        """Add what installing asks of torch."""
        text = f"__version__ = {version!r}\nclass version:\n    cuda = {cuda!r}\n"
        return self.wheel("torch", version, {"torch/__init__.py": text}, place=place)

    def make(self, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run make; pip knows the registries alone."""
        pip = {"CONFIG_FILE": os.devnull, "INDEX_URL": (self.registries / "simple").as_uri(), "NO_CACHE_DIR": "1"}
        given = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "MAKE"))}
        return subprocess.run(
            ["make", f"PYTHON={sys.executable}", f"TORCH_INDEX={(self.registries / 'torch').as_uri()}", *arguments],
            cwd=self.folder,
            env={**given, **{f"PIP_{name}": value for name, value in pip.items()}, **variables},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def ask(self, code: str) -> str:
        """What a line of Python prints in the environment that was made."""
        command = [str(self.folder / ".venv/bin/python"), "-c", code]
        return subprocess.check_output(command, cwd="/", text=True, timeout=PATIENCE)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return Checkout(tmp_path_factory.mktemp("installation"))


@pytest.fixture
def old_driver(tmp_path: Path) -> str:
    """A PATH with a card whose driver knows CUDA 12 alone."""
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


def test_a_build_that_the_driver_cannot_run_is_refused(checkout: Checkout, old_driver: str) -> None:
    done = checkout.make("install", "CUDA=1", PATH=old_driver)
    assert done.returncode == 2
    assert re.search(r"^make install: CUDA=1 .* driver 535.104.05 .* make install CUDA=12$", done.stderr, re.M)


@pytest.mark.slow
def test_an_older_driver_gets_the_build_for_cuda_12(checkout: Checkout, old_driver: str) -> None:
    done = checkout.make("install", PATH=old_driver)
    assert done.returncode == 0, done.stderr
    assert "install: torch 2.13.0+cu126 for CUDA 12.6" in done.stdout
    assert checkout.ask("import torch, zeromt; print(torch.__version__)") == "2.13.0+cu126\n"


@pytest.mark.slow
def test_a_site_s_torch_is_used_with_the_wheels_that_it_lacks(checkout: Checkout, tmp_path: Path) -> None:
    (checkout.folder / "list.txt").write_text(SITE)
    for python, folder in ((OTHER, "other"), (HERE, "wheels")):
        done = checkout.make("wheels", "SITE=list.txt", f"PYTHON_VERSION={python}", f"WHEELS={folder}")
        assert done.returncode == 0, done.stderr
        found = {path.name.split("-")[0] for path in (checkout.folder / folder).glob("*.whl")}
        assert found >= {"deepspeed", "setuptools", "new" if python == OTHER else "old"}
        assert not found & {"torch", "numpy", "old" if python == OTHER else "new"}
    site = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(site)], check=True, timeout=PATIENCE)
    for wheel in (checkout.torch("2.11.0+cu130", "13.0", "site"), checkout.wheel("numpy", "2.5.2", place="site")):
        zipfile.ZipFile(wheel).extractall(site / "lib" / f"python{HERE}" / "site-packages")
    shutil.rmtree(checkout.folder / ".venv", ignore_errors=True)
    log = tmp_path / "pip.log"
    words = ("TORCH=site", "WHEELS=wheels", f"PYTHON={site}/bin/python")
    done = checkout.make("install", *words, PIP_LOG=str(log))
    assert done.returncode == 0, done.stderr
    assert "install: torch 2.11.0+cu130 for CUDA 13.0" in done.stdout
    assert "Looking in indexes" not in log.read_text(), "pip asks no registry"
    assert checkout.ask("import torch, zeromt; print(torch.__file__)").startswith(str(site))


A_GPU_AND_NO_TOOLKIT = """
import torch
import torch.utils.cpp_extension
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 1
torch.cuda.get_device_properties = lambda *_: type("Card", (), {"major": 9, "minor": 0})()
torch.version.cuda = "13.0"
torch.utils.cpp_extension.CUDA_HOME = None
from deepspeed.ops.op_builder.all_ops import ALL_OPS
for builder in ALL_OPS.values():  # what DeepSpeed's setup.py asks of each; six raise where there is no toolkit
    builder.is_compatible()
"""


@pytest.mark.slow
def test_deepspeed_asks_for_no_cuda_toolkit() -> None:
    ask_python(A_GPU_AND_NO_TOOLKIT, variables={**environment(), **DEEPSPEED_VARIABLES})
