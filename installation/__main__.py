"""`python -m installation`: print what pip is asked for, to bring torch, and write an environment's constraints.txt."""

import argparse
import importlib.metadata
import re
import sys
from pathlib import Path

from installation.torch_builds import BUILDS, INDEX, choose, gpus_here

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
DECIDED_BY_TORCH = {"torch", "triton", "setuptools"}
"""Pins that another version of torch than the pinned one does without."""


def main(arguments: list[str]) -> None:
    """Run it; what the user can put right ends it with a line and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m installation", description=__doc__)
    parser.add_argument("--cuda", choices=["", *BUILDS], help="CUDA=; empty for what fits this machine")
    parser.add_argument("--torch", default="", help="TORCH=: a version, or site for the one that this Python has")
    parser.add_argument("--index", default="", help=f"TORCH_INDEX=: a mirror of {INDEX}")
    parser.add_argument("--environment", type=Path, help="where constraints.txt is written")
    given = parser.parse_args(arguments)
    pins = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    [version] = [line.removeprefix("torch==") for line in pins if line.startswith("torch==")]
    left_out = {"torch"}
    if given.torch == "site":
        here = {normalized(one.name): one.version for one in importlib.metadata.distributions()}
        if "torch" not in here:
            parser.exit(2, f"TORCH=site: {sys.executable} has no torch; name the Python that has one: PYTHON=...\n")
        version, left_out = here["torch"], set(here)
        show_site(given.environment)
        print("torch")
    else:
        if given.torch:
            version, left_out = given.torch, DECIDED_BY_TORCH
        try:
            build = BUILDS[given.cuda] if given.cuda else choose(gpus_here())
        except LookupError as error:
            parser.exit(2, f"{error.args[0]}\n")
        print(build.pip.format(version=version, index=given.index or INDEX))
    if given.environment:
        kept = [line for line in pins if normalized(line.partition("==")[0]) not in left_out]
        text = "\n".join([*kept, f"torch=={version}", ""])
        (given.environment / "constraints.txt").write_text(text, encoding="utf-8")


def show_site(environment: Path) -> None:
    """Let an environment see the packages of this Python, also where that is a virtual environment itself."""
    [target] = environment.glob("lib/python3*/site-packages")
    folders = [path for path in sys.path if path.endswith("-packages")]
    (target / "site.pth").write_text("\n".join([*folders, ""]), encoding="utf-8")


def normalized(name: str) -> str:
    """A package's name as registries compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main(sys.argv[1:])
