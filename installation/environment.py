"""`make install`: a virtual environment with torch, DeepSpeed and zeromt."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from installation.driver import gpus
from installation.errors import InstallationError
from installation.project import BUILDING, DEEPSPEED_VARIABLES, ROOT, constraints_without, normalized, pins
from installation.torch_builds import choose

DECIDED_BY_TORCH = {"torch", "triton", "setuptools"}
"""Pins that another version of torch than the pinned one does without."""
_NAMES = "import importlib.metadata as m; print(*{d.metadata['Name'] for d in m.distributions()}, sep='\\n')"
_FOLDERS = "import sys; print(*(path for path in sys.path if path.endswith('-packages')), sep='\\n')"
_TORCH = (
    "import torch; print('install: torch', torch.__version__,"
    " 'for', f'CUDA {torch.version.cuda}' if torch.version.cuda else 'CPUs')"
)


@dataclass(kw_only=True, slots=True, frozen=True)
class Request:
    """What `make install` was asked for."""

    folder: Path
    """The environment."""
    torch: str
    """A version; "site" for the one that this Python has; empty for the pinned one."""
    cuda: str
    index: str
    """torch's own index."""
    wheels: str
    """A folder that takes the place of every registry; empty for none."""
    extras: str

    @property
    def uses_site(self) -> bool:
        """Whether the environment sees the packages of the Python that makes it."""
        return self.torch == "site"


@dataclass(kw_only=True, slots=True, frozen=True)
class Environment:
    """A virtual environment that packages are installed into."""

    folder: Path
    sources: tuple[str, ...]
    """pip's options that say from where."""

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin/python"

    @property
    def constraints(self) -> Path:
        """The versions that it takes."""
        return self.folder / "constraints.txt"

    def output(self, code: str) -> str | None:
        """What a line of Python prints in it; None if it fails."""
        return _output(self.python, code)

    def pip(self, *arguments: str, quiet: bool = False) -> bool:
        """`pip install`; whether it succeeded.

        Args:
            arguments: options and requirements.
            quiet: say nothing about a failure.
        """
        options = ["--disable-pip-version-check", "-c", str(self.constraints), *self.sources]
        if not sys.stdout.isatty():  # on a terminal, pip's own bars
            options.append("-qq")
        with_shell = {**os.environ, **DEEPSPEED_VARIABLES, "PATH": f"{os.environ.get('PATH', '')}:{self.folder}/shim"}
        command = [str(self.python), "-m", "pip", "install", *options, *arguments]
        errors = subprocess.DEVNULL if quiet else None
        return subprocess.run(command, cwd=ROOT, env=with_shell, stderr=errors, check=False).returncode == 0

    def install(self, *arguments: str) -> None:
        """`pip install`.

        Raises:
            InstallationError: it failed.
        """
        if not self.pip(*arguments):
            raise InstallationError(f"pip could not install {' '.join(arguments)}, see its lines above")


def install(request: Request) -> None:
    """Make the environment, or bring it up to date.

    Raises:
        InstallationError: with what to do.
    """
    environment = _create(request)
    print("install: torch", flush=True)
    if request.uses_site:
        _check_site(environment)
        environment.install(*BUILDING)
    else:
        _install_torch(environment, request)
    print(environment.output(_TORCH) or "install: torch cannot be imported", flush=True)
    print("install: deepspeed", flush=True)
    shim = request.folder / "shim"  # DeepSpeed's setup runs one-line commands in bash
    shim.mkdir(exist_ok=True)
    if shutil.which("bash") is None and (shell := shutil.which("sh")):
        (shim / "bash").symlink_to(shell)
    try:
        environment.install("--no-build-isolation", "deepspeed")
    finally:
        shutil.rmtree(shim)
    print("install: zeromt", flush=True)
    environment.install("--no-build-isolation", "-e", f".{request.extras}")
    print(f"install: done; the command is {request.folder}/bin/zeromt", flush=True)


def _create(request: Request) -> Environment:
    """The environment with pip, and nothing else yet if it was not there."""
    sources: tuple[str, ...] = ()
    if request.wheels:
        if not any(Path(request.wheels).glob("*.whl")):
            raise InstallationError(f"WHEELS={request.wheels} holds no wheel; `make wheels` fills a folder")
        sources = ("--no-index", "--find-links", str(Path(request.wheels).resolve()))
    environment = Environment(folder=request.folder, sources=sources)
    if not environment.python.exists():
        _venv(request)
    left_out: set[str] = set()
    if request.uses_site:
        left_out = {normalized(name) for name in (_output(Path(sys.executable), _NAMES) or "").split()}
    elif request.torch:
        left_out = DECIDED_BY_TORCH
    environment.constraints.write_text(constraints_without(left_out), encoding="utf-8")
    return environment


def _venv(request: Request) -> None:
    """A new virtual environment; one that sees this Python's packages where those are used."""
    is_in_venv = sys.prefix != sys.base_prefix  # a venv of it would see the packages of the Python below it
    options = ["--system-site-packages"] if request.uses_site and not is_in_venv else []
    command = [sys.executable, "-m", "venv", *options, str(request.folder)]
    if subprocess.run(command, check=False).returncode != 0:
        has_pip = request.uses_site and _output(Path(sys.executable), "import pip") is not None
        if not has_pip or subprocess.run([*command, "--without-pip"], check=False).returncode != 0:
            shutil.rmtree(request.folder, ignore_errors=True)
            raise InstallationError(f"{sys.executable} -m venv failed; on Debian and Ubuntu: apt install python3-venv")
    if request.uses_site and is_in_venv:
        [target] = request.folder.glob("lib/python3*/site-packages")
        (target / "site.pth").write_text(_output(Path(sys.executable), _FOLDERS) or "", encoding="utf-8")


def _check_site(environment: Environment) -> None:
    if environment.output("import torch") is None:
        raise InstallationError(
            f"TORCH=site, and {environment.python} finds no torch that can be imported; name the Python that has one "
            f"(`make clean`, then `make install TORCH=site PYTHON=...`; here it was {sys.executable})"
        )


def _install_torch(environment: Environment, request: Request) -> None:
    build = choose(request.cuda, gpus(), request.torch or pins()["torch"], request.index)
    print(f"install: {build.title}", flush=True)
    environment.install(*BUILDING)  # before torch, which warns where there is no numpy
    *first, last = build.attempts
    if not (any(environment.pip(*attempt, quiet=True) for attempt in first) or environment.pip(*last)):
        raise InstallationError(f"pip found no {last[-1]}; {build.otherwise}")


def _output(python: Path, code: str) -> str | None:
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None
