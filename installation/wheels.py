"""`make wheels`: the wheels that a site lacks, collected where there is a network, for a machine without one.

For x86_64 and a Python that need not be the one that runs. What has no wheel is built into one without compiling.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from installation.errors import InstallationError
from installation.project import BUILDING, DEEPSPEED_VARIABLES, constraints_without, normalized, pins, requirements
from installation.site_packages import STANDS_IN, read_list, stand_ins, versions_of_site
from installation.torch_builds import choose

NEWEST_GLIBC, OLDEST_GLIBC = 28, 5
"""manylinux_2_28 is what torch's own wheels need: RHEL 8, Debian 10, Ubuntu 20.04 and newer."""
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(NEWEST_GLIBC, OLDEST_GLIBC - 1, -1)]
PLATFORMS += [f"manylinux{name}_x86_64" for name in ("2014", "2010", "1")]
SOURCE_ALONE = {"deepspeed", "antlr4-python3-runtime"}
"""What registries have no wheel of, and pip brings for another Python as a wheel alone."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Request:
    """What `make wheels` was asked for."""

    folder: Path
    site: str
    """A file that lists the packages of the site; empty for a site without any."""
    python: str
    """The site's Python, such as "3.12"."""
    cuda: str
    """Which torch is brought, as in `make install`, where the site has none."""
    index: str
    extras: str


class Collector:
    """pip, with all that it must be told for the site's Python."""

    def __init__(self, request: Request, scratch: Path) -> None:
        """Make the stand-ins of the site's packages in `scratch`."""
        self.request = request
        self.folder = request.folder
        self.scratch = scratch
        if importlib.util.find_spec("pip") is None:
            raise InstallationError(f"{sys.executable} has no pip; on Debian and Ubuntu: apt install python3-pip")
        listed = read_list(Path(request.site)) if request.site else {}
        self.site, self.guessed = versions_of_site(listed)
        (scratch / "site").mkdir()
        lines = stand_ins(self.site, scratch / "site")
        self.wanted = [*BUILDING, *requirements(request.extras)]
        self.options: list[str] = []
        self.torches: tuple[tuple[str, ...], ...] = ((),)
        """Ways to ask pip for the torch that is brought: options and a requirement, or nothing."""
        if "torch" not in self.site:
            self.torches = choose(request.cuda, None, pins()["torch"], request.index).attempts
        self.constraints = scratch / "constraints.txt"
        self.constraints.write_text(constraints_without(self.site.keys()) + "\n".join(lines) + "\n", encoding="utf-8")

    def resolve(self) -> dict[str, str]:
        """Versions, by name, of all that the environment will have; the site's own end in "+site".

        Raises:
            InstallationError: pip found no solution.
        """
        report = self.scratch / "report.json"
        asked = ["install", "--dry-run", "--target", str(self.scratch / "target"), "--report", str(report)]
        sources = ["--find-links", str(self.scratch / "site"), "--find-links", str(self.folder)]
        for torch in self.torches:
            *self.options, _ = torch or ("",)
            done = self.pip(*asked, "-c", str(self.constraints), *self.target(), *sources, *self.wanted, *torch)
            if done.returncode == 0:
                found = [entry["metadata"] for entry in json.loads(report.read_text(encoding="utf-8"))["install"]]
                return {normalized(each["name"]): each["version"] for each in found}
        sys.stderr.write(done.stdout + done.stderr)
        advice = "a package of the site that is in the way can be left out of SITE's list, and its wheel is brought"
        raise InstallationError(f"pip found no set of wheels for Python {self.request.python}; {advice}")

    def target(self) -> list[str]:
        """pip's options for the site's Python and platform."""
        platforms = [option for name in PLATFORMS for option in ("--platform", name)]
        return ["--only-binary=:all:", "--python-version", self.request.python, "--implementation", "cp", *platforms]

    def build(self, name: str) -> None:
        """Build a wheel of a package that registries have as source alone.

        Raises:
            InstallationError: it failed, or the wheel is for one kind of machine.
        """
        print(f"wheels: building {name}", flush=True)
        output = self.scratch / "built"
        done = self.pip("wheel", "--no-deps", "-w", str(output), f"{name}=={pins()[name]}")
        if done.returncode != 0:
            sys.stderr.write(done.stderr)
            raise InstallationError(f"{name} could not be built, see pip's lines above")
        [wheel] = output.glob("*.whl")
        if not wheel.name.endswith("-none-any.whl"):
            raise InstallationError(f"{name} was built for this machine alone: {wheel.name}")
        shutil.move(wheel, self.folder / wheel.name)

    def download(self, found: dict[str, str]) -> None:
        """Fetch what the site lacks of it into the folder.

        Raises:
            InstallationError: pip could not.
        """
        pinned = [f"{name}=={version}" for name, version in found.items() if not version.endswith(STANDS_IN)]
        sources = ["--find-links", str(self.folder), *self.options]
        done = self.pip("download", "--no-deps", "-d", str(self.folder), *self.target(), *sources, *pinned)
        if done.returncode != 0:
            sys.stderr.write(done.stderr)
            raise InstallationError("pip could not fetch all wheels, see its lines above")

    def pip(self, command: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run pip for the site's Python; what it builds, it builds with the Python that runs."""
        script = [str(Path(__file__).with_name("target_pip.py")), self.request.python]
        start = ["-m", "pip"] if command == "wheel" else script
        whole = [sys.executable, *start, command, "--disable-pip-version-check", *arguments]
        variables = {**os.environ, **DEEPSPEED_VARIABLES}
        return subprocess.run(whole, env=variables, capture_output=True, text=True, check=False)


def collect(request: Request) -> None:
    """Fill the folder, and say what is in it.

    Raises:
        InstallationError: with what to do.
    """
    request.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        collector = Collector(request, Path(scratch))
        for name in sorted(SOURCE_ALONE & pins().keys() - collector.site.keys()):
            collector.build(name)
        found = collector.resolve()
        collector.download(found)
    wheels = sorted(request.folder.glob("*.whl"))
    for wheel in wheels:
        print(f"  {wheel.name}")
    if guessed := [name for name in collector.guessed if name in found]:
        print(f"wheels: taken to be new enough, as SITE's list gives no version: {', '.join(guessed)}")
    size = sum(wheel.stat().st_size for wheel in wheels) / 1e6
    print(f"wheels: {len(wheels)} for Python {request.python} on x86_64, {size:.1f} MB, in {request.folder}")
