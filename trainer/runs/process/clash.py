"""Whether this project's packages are found, or something of the user's that has the name of one.

`python -m` and PYTHONPATH put folders before the installed packages, and `configs/`, `model.py` or `launcher/` are what
others call theirs too. Imports nothing of the project: whatever it is may be the one that is missing.
"""

import importlib.util
from pathlib import Path

PACKAGES = ("configs", "data_pipeline", "model")
"""Those that the ranks and the command line import; `trainer` is where this stands."""


def find_clash() -> str | None:
    """One line that names what stands in the way of an import, and what to do; None where nothing does."""
    root = Path(__file__).parents[3]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None:
            return f"{name}: this package of zeromt is not found beside {root / 'trainer'}: install zeromt again"
        places = [Path(place).absolute() for place in spec.submodule_search_locations or []]
        if root / name not in places:
            return describe_clash(name, str(places[0] if places else spec.origin), root)
    return None


def describe_clash(name: str, found: str, root: Path) -> str:
    """The line that names it.

    Args:
        name: of the package.
        found: what is found in its place.
        root: where zeromt's packages are.
    """
    return (
        f"{name}: {found!r} is found in place of zeromt's own package {str(root / name)!r}: rename it, take its folder "
        "from PYTHONPATH, work in another folder, or set PYTHONSAFEPATH=1, which keeps the current folder out of it"
    )
