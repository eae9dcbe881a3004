"""torch's builds, and which of them runs on this machine's GPUs.

The CUDA 13 builds, which the registry has since 2.11, hold code for cards of compute capability 7.5 (Turing) and newer.
Those for CUDA 12.6 have code for 5.0 to 9.0, V100 among them, and are in torch's own index alone. Torch's matrices of
support: https://github.com/pytorch/pytorch/pull/175253 (for 2.11), /pull/182849 (2.12), /pull/197555 (2.13 and 2.14);
/issues/190385 proposes that 2.15 has none for CUDA 12. Drivers: NVIDIA's guide to CUDA's compatibility.
"""

import math
import re
import subprocess
from dataclasses import dataclass

INDEX = "https://download.pytorch.org/whl"


@dataclass(kw_only=True, slots=True, frozen=True)
class Gpus:
    """The GPUs of a machine."""

    driver: str
    """Its version, such as "535.104.05"."""
    capabilities: tuple[float, ...]
    """Compute capabilities, such as 7.0; empty if unknown."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Build:
    """One of torch's builds."""

    pip: str
    """A requirement and pip's options, with the version and torch's own index to be filled in."""
    driver: int = 0
    """The oldest one that serves it, all minor versions of its CUDA included."""
    oldest: float = 0.0
    newest: float = math.inf
    """The compute capabilities that it has code for."""

    @property
    def needs(self) -> str:
        """What it takes to run it."""
        cards = "or newer" if self.newest == math.inf else f"to {self.newest}"
        return f"driver {self.driver} or newer, compute capability {self.oldest} {cards}"

    def runs_on(self, gpus: Gpus) -> bool:
        """Whether the driver serves it, and it has code for every card."""
        is_new_enough = int(gpus.driver.partition(".")[0]) >= self.driver
        return is_new_enough and all(self.oldest <= one <= self.newest for one in gpus.capabilities)


BUILDS = {
    "1": Build(pip="torch==={version}", driver=580, oldest=7.5),
    "12": Build(pip="torch=={version}+cu126 --extra-index-url {index}/cu126", driver=525, oldest=5.0, newest=9.0),
    "0": Build(pip="torch=={version} --retries 1 --extra-index-url {index}/cpu"),
}
"""By `CUDA=`. `===` takes the registry's alone; of equal versions pip prefers those with a suffix, such as +cpu.
The registry's, which runs on CPUs too, is what CPUs get where torch's own index does not answer."""


def choose(gpus: Gpus | None) -> Build:
    """The newest build that runs on these; that for CPUs where there are none.

    Raises:
        LookupError: no build runs on them.
    """
    if gpus is None:
        return BUILDS["0"]
    for cuda in ("1", "12"):
        if BUILDS[cuda].runs_on(gpus):
            return BUILDS[cuda]
    capabilities = ", ".join(map(str, gpus.capabilities)) or "unknown"
    needs = "; ".join(f"CUDA={cuda}: {BUILDS[cuda].needs}" for cuda in ("1", "12"))
    raise LookupError(
        f"driver {gpus.driver}, compute capability {capabilities}: no build of torch runs here ({needs}); "
        "update the driver, or take CUDA=0, for CPUs"
    )


def gpus_here() -> Gpus | None:
    """The GPUs that nvidia-smi shows."""
    drivers = re.findall(r"^\d+\.[\d.]+$", _ask("driver_version"), re.M)
    capabilities = re.findall(r"^\d+\.\d+$", _ask("compute_cap"), re.M)
    return Gpus(driver=drivers[0], capabilities=tuple(map(float, capabilities))) if drivers else None


def _ask(field: str) -> str:
    """What nvidia-smi says of each GPU, on a line; nothing if it is not there, or words if it fails."""
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
