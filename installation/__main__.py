"""`python -m installation install` and `... wheels`: what the recipes of `make install` and `make wheels` run."""

import argparse
import re
import sys
from pathlib import Path

from installation import environment, wheels
from installation.errors import InstallationError
from installation.torch_builds import CHOICES, INDEX


def main(arguments: list[str]) -> int:
    """Run a command.

    Returns:
        0, or 2 where the user can put something right; one line says what.
    """
    given = parser().parse_args(arguments)
    try:
        if given.command == "install":
            environment.install(
                environment.Request(
                    folder=given.folder,
                    torch=given.torch,
                    cuda=given.cuda,
                    index=given.torch_index,
                    wheels=given.wheels,
                    extras=given.extras,
                )
            )
        else:
            wheels.collect(
                wheels.Request(
                    folder=given.wheels,
                    site=given.site,
                    python=given.python_version,
                    cuda=given.cuda or "1",
                    index=given.torch_index,
                    extras=given.extras,
                )
            )
    except InstallationError as error:
        print(f"make {given.command}: {error}", file=sys.stderr)
        return 2
    return 0


def parser() -> argparse.ArgumentParser:
    """The options; an empty value is as none, because make passes variables that nobody has set."""
    both = argparse.ArgumentParser(add_help=False)
    both.add_argument("--cuda", choices=CHOICES, default="", help="CUDA=: 0, 1 or 12; empty for what fits")
    both.add_argument("--extras", default="", help="EXTRAS=, such as [export,gpu]")
    both.add_argument("--torch-index", type=lambda text: text or INDEX, default=INDEX, help="TORCH_INDEX=")
    top = argparse.ArgumentParser(prog="python -m installation", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    install = commands.add_parser("install", parents=[both])
    install.add_argument("--folder", type=Path, default=Path(".venv"))
    install.add_argument("--torch", default="", help="TORCH=: a version, or site for the one that this Python has")
    install.add_argument("--wheels", default="", help="WHEELS=: a folder in place of every registry")
    collect = commands.add_parser("wheels", parents=[both])
    collect.add_argument("--wheels", type=lambda text: Path(text or "wheels"), default=Path("wheels"))
    collect.add_argument(
        "--site", default="", help="SITE=: a file with the packages that are there, as pip freeze lists"
    )
    collect.add_argument("--python-version", type=python_version, default="", help="PYTHON_VERSION=, such as 3.12")
    return top


def python_version(text: str) -> str:
    """3.11 or newer; this Python's for nothing."""
    if not text:
        return f"{sys.version_info.major}.{sys.version_info.minor}"
    found = re.fullmatch(r"3\.(\d+)", text)
    if not found or int(found[1]) < 11:
        raise argparse.ArgumentTypeError(f"PYTHON_VERSION={text}: a version such as 3.12, at least 3.11")
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
