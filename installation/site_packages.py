"""The packages that a site has, by its list: what its wheels need not bring."""

import re
import zipfile
from pathlib import Path

from installation.errors import InstallationError
from installation.project import BUILDING, normalized, pins

STANDS_IN = "+site"
"""The local version of stand-ins. Without it, a registry's wheel of the same version would win by its tags."""

_PINNED = re.compile(r"([\w.-]+)\s*===?\s*([\w.!+-]+)")
_LISTED = re.compile(r"([\w.-]+)\s+(v?\d[\w.!+-]*)(\s.*)?")
_NAMED = re.compile(r"(?:-e\s.*#egg=)?([\w.-]+)(?:\s*@\s.*|&.*)?")


def read_list(path: Path) -> dict[str, str | None]:
    """Versions by normalized names, None where the list has none.

    Args:
        path: lines as of `pip freeze` (`name==version`, `name @ address`) or `pip list` (`name version`), or names.

    Raises:
        InstallationError: it cannot be read, or a line is none of these.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InstallationError(f"SITE={path}: {error}") from None
    found: dict[str, str | None] = {}
    for number, line in enumerate(lines, 1):
        text = line.partition(" #")[0].strip()
        if not text or text.startswith("#") or re.fullmatch(r"-[- ]+|Package\s+Version.*", text):
            continue
        versioned = _PINNED.fullmatch(text) or _LISTED.fullmatch(text)
        named = versioned or _NAMED.fullmatch(text)
        if not named:
            raise InstallationError(
                f"SITE={path}, line {number}: {text!r}; a line is name==version, as of `pip freeze`"
            )
        found[normalized(named[1])] = versioned[2] if versioned else None
    return found


def versions_of_site(listed: dict[str, str | None]) -> tuple[dict[str, str], list[str]]:
    """What is taken to be there: versions by names; and the names whose version is a guess.

    A package without a version counts as the one that constraints.txt pins. What packages are built with is small and
    must be new enough, so it is brought unless its version is known.
    """
    pinned, building = pins(), {normalized(re.split(r"[<>=]", one)[0]) for one in BUILDING}
    versions = {name: version for name, version in listed.items() if version is not None}
    guessed = sorted(listed.keys() - versions.keys() - building & pinned.keys())
    return versions | {name: pinned[name] for name in guessed}, guessed


def stand_ins(versions: dict[str, str], folder: Path) -> list[str]:
    """Write an empty wheel for each package of a site, for pip to find in place of the real ones.

    Returns:
        Lines for a constraints file.
    """
    lines = []
    for name, version in versions.items():
        stands_in = f"{version.partition('+')[0].removeprefix('v')}{STANDS_IN}"
        stem = f"{name.replace('-', '_')}-{stands_in}"
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {stands_in}\n")
            wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{stem}.dist-info/RECORD", "")
        lines.append(f"{name}=={stands_in}")
    return lines
