"""Checks that imports find this project's packages and not something of the user's with the same name.

`python -m` and PYTHONPATH put folders before the installed packages, and names such as `configs/`, `model.py` or
`launcher/` are common. This module imports nothing of the project, since any of it may be what is shadowed.
"""

import importlib.util
from pathlib import Path

PACKAGES = ("configs", "data_pipeline", "model")
"""Packages that ranks and the command line import; this module itself is in `trainer`."""


def find_clash() -> str | None:
    """One line that names what shadows a package, and what to do; None if nothing does."""
    root = Path(__file__).parents[2]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None:
            return f"{name}: this package of zeromt is not found beside {root / 'trainer'}: install zeromt again"
        places = [Path(place).absolute() for place in spec.submodule_search_locations or []]
        if root / name not in places:
            return describe_clash(name, str(places[0] if places else spec.origin), root)
    return None


def describe_clash(name: str, other: str, root: Path) -> str:
    """The line that names it.

    Args:
        name: of the package.
        other: what is found instead.
        root: where zeromt's packages are.
    """
    return (
        f"{name}: {other!r} is found in place of zeromt's own package {str(root / name)!r}: rename it, take its folder "
        "from PYTHONPATH, work in another folder, or set PYTHONSAFEPATH=1, which keeps the current folder out of it"
    )
