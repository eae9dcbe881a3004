"""`make install` and `make wheels` in a small checkout, with a registry of stand-ins; the environments are real."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import REPO
from tests.waiting import PATIENCE

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
OTHER = "3.14" if HERE != "3.14" else "3.13"
PROJECT = """
[project]
name = "{}"
version = "1"
dependencies = {}
[build-system]
requires = ["setuptools"]
[tool.setuptools]
packages = []
"""
OLD_DRIVER = "#!/bin/sh\ncase $1 in *driver_version) echo 535.104.05;; *) echo 8.0;; esac\n"


def wheel(folder: Path, name: str, version: str, tag: str = "py3-none-any", text: str = "") -> Path:
    """Write one that has a module."""
    files = {
        f"{name}.py": text,
        f"{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{name}-{version}.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{name}-{version}.dist-info/RECORD": "",
    }
    path = folder / f"{name}-{version}-{tag}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for inside, content in files.items():
            archive.writestr(inside, content)
    return path


def torch(folder: Path, version: str, cuda: str) -> Path:
    """Write torch's, as far as installing asks for it."""
    return wheel(folder, "torch", version, text=f"__version__ = {version!r}\nclass version:\n    cuda = {cuda!r}\n")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What installing needs, beside a `registry` and torch's own `index`."""
    folder, registry, source = tmp_path / "checkout", tmp_path / "registry", tmp_path / "deepspeed-1"
    shutil.copytree(REPO / "installation", folder / "installation", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPO / "Makefile", folder)
    (folder / "constraints.txt").write_text("torch==2.13.0\nnumpy==2.4.6\ndeepspeed==1\n")
    (folder / "pyproject.toml").write_text(PROJECT.format("zeromt", ["torch>=2.11", "deepspeed", "numpy>=2"]))
    torch(registry, "2.13.0", "13.0")
    for python in (HERE.replace(".", ""), OTHER.replace(".", "")):
        wheel(registry, "numpy", "2.4.6", f"cp{python}-cp{python}-manylinux_2_27_x86_64.manylinux_2_28_x86_64")
    setuptools = importlib.metadata.distribution("setuptools")  # the real one: it builds
    with zipfile.ZipFile(registry / f"setuptools-{setuptools.version}-py3-none-any.whl", "w") as archive:
        for path in setuptools.files or ():
            if path.parts[0] != ".." and path.suffix != ".pyc":
                archive.write(str(path.locate()), str(path))
    source.mkdir()
    (source / "pyproject.toml").write_text(PROJECT.format("deepspeed", []))
    shutil.make_archive(str(registry / source.name), "gztar", tmp_path, source.name)
    page = torch(tmp_path / "index/cu126/torch", "2.13.0+cu126", "12.6").with_name("index.html")
    page.write_text('<a href="torch-2.13.0+cu126-py3-none-any.whl">torch-2.13.0+cu126-py3-none-any.whl</a>')
    return folder


def make(checkout: Path, *words: str, registry: str = "registry", **variables: str) -> str:
    """Run make, whose pip knows nothing but the stand-ins; what it prints."""
    index = (checkout.parent / "index").as_uri()
    places = {"PIP_INDEX_URL": f"{index}/none", "PIP_FIND_LINKS": str(checkout.parent / registry)}
    given = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "MAKE"))}
    done = subprocess.run(
        ["make", f"PYTHON={sys.executable}", f"TORCH_INDEX={index}", *words],
        cwd=checkout,
        env={**given, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1", **places, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
def test_an_older_driver_gets_the_build_for_cuda_12_also_from_wheels(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").touch(0o755)
    (tmp_path / "nvidia-smi").write_text(OLD_DRIVER)
    make(checkout, "wheels", "CUDA=12")
    for words, registry in (([], "registry"), (["WHEELS=wheels"], "none")):
        shutil.rmtree(checkout / ".venv", ignore_errors=True)
        said = make(checkout, "install", *words, registry=registry, PATH=f"{tmp_path}:{os.environ['PATH']}")
        assert "install: done, with torch 2.13.0+cu126 for CUDA 12.6" in said


@pytest.mark.slow
def test_a_site_s_torch_is_used_with_the_wheels_that_it_lacks(checkout: Path, tmp_path: Path) -> None:
    for python, folder in ((OTHER, "other"), (HERE, "wheels")):
        make(checkout, "wheels", "TORCH=site", f"PYTHON_VERSION={python}", f"WHEELS={folder}")
        wheels = {"-".join(path.name.split("-")[:3:2]) for path in (checkout / folder).iterdir()}
        assert wheels == {"deepspeed-py3", "setuptools-py3", f"numpy-cp{python.replace('.', '')}"}
    site = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(site)], check=True, timeout=PATIENCE)
    for one in (torch(tmp_path, "2.11.0+cu130", "13.0"), wheel(tmp_path, "numpy", "1.26.4")):
        zipfile.ZipFile(one).extractall(site / "lib" / f"python{HERE}" / "site-packages")
    words = ("install", "WHEELS=wheels", "TORCH=site", f"PYTHON={site}/bin/python")
    assert "with torch 2.11.0+cu130 for CUDA 13.0" in make(checkout, *words, registry="none")
    code = "import importlib.metadata as m, torch; print(torch.__file__, m.version('numpy'))"
    said = subprocess.check_output([checkout / ".venv/bin/python", "-c", code], text=True, timeout=PATIENCE)
    assert said == f"{site}/lib/python{HERE}/site-packages/torch.py 2.4.6\n", "the site's numpy is too old"
