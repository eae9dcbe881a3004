"""Checks of the installed packages: zeromt's own, and the versions of those that it requires."""

from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import Requirement

from trainer.runs.clash import find_clash
from zeromt.doctor.finding import Finding, doubt, fault, good

REINSTALL = "install zeromt again: `make install`, or `pip install zeromt`"


def packages(distribution: str = "zeromt") -> Iterator[Finding]:
    """Whether every required package is installed in an allowed version."""
    if (clash := find_clash()) is not None:
        said, _, mend = clash.partition(": rename")
        yield fault("packages", said, f"rename{mend}" if mend else REINSTALL)
    try:
        needs = [Requirement(text) for text in metadata.requires(distribution) or ()]
    except metadata.PackageNotFoundError:
        yield doubt("packages", "zeromt is not installed here, so its requirements cannot be checked", REINSTALL)
        return
    needs = [need for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    wrong = 0
    for need in needs:
        mend = f"pip install '{need.name}{need.specifier}'"
        try:
            version = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            yield fault("packages", f"{need.name} is missing", mend)
        else:
            if need.specifier.contains(version, prereleases=True):
                continue
            yield fault("packages", f"{need.name} {version} is installed; zeromt requires {need.specifier}", mend)
        wrong += 1
    if not wrong:
        yield good("packages", f"{len(needs)} requirements are met: torch {metadata.version('torch')}")
