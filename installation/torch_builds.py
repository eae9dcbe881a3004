"""Which of torch's builds is taken: for CPUs, the registry's for CUDA 13, or that for CUDA 12.

The CUDA 13 builds, which the registry has since 2.11, hold code for cards of compute capability 7.5 (Turing) and newer,
and need a driver of 580. Those for CUDA 12.6 have code for 5.0 to 9.0, Maxwell, Pascal and V100 among them, and are in
torch's own index alone. Torch's matrices of support: https://github.com/pytorch/pytorch/pull/175253 (for 2.11),
/pull/182849 (2.12), /pull/197555 (2.13 and 2.14); /issues/190385 proposes that 2.15 has none for CUDA 12.
"""

from dataclasses import dataclass

from installation.driver import OLDEST_DRIVER, Gpus
from installation.errors import InstallationError

INDEX = "https://download.pytorch.org/whl"
OLDEST_CAPABILITY_OF_CUDA_13 = 7.5
NEWEST_CAPABILITY_OF_CUDA_12 = 9.0
CHOICES = ("", "0", "1", "12")


@dataclass(kw_only=True, slots=True, frozen=True)
class Build:
    """One of torch's builds."""

    title: str
    attempts: tuple[tuple[str, ...], ...]
    """pip's arguments, tried one after the other."""
    otherwise: str
    """What to do if none succeeds."""


def choose(cuda: str, gpus: Gpus | None, version: str, index: str = INDEX) -> Build:
    """The build to install.

    Args:
        cuda: 0 for CPUs, 1 for the registry's CUDA build, 12 for CUDA 12's; empty for what fits this machine.
        gpus: of this machine; None if it shows none: nothing is checked then.
        version: of torch.
        index: torch's own index, or a mirror of it.

    Raises:
        InstallationError: this machine's GPUs cannot run the build that is asked for, or none.
    """
    if cuda == "0" or (cuda == "" and gpus is None):
        return _for_cpus(version, index)
    too_new = gpus and _why_not_13(gpus)
    if cuda == "1" and too_new:
        raise InstallationError(f"CUDA=1 takes the build for CUDA 13, and {too_new}; do: make install CUDA=12")
    if cuda == "1" or not (cuda == "12" or too_new):
        reach = "see pip's lines above"
        return Build(title="the registry's CUDA build", attempts=((f"torch==={version}",),), otherwise=reach)
    if gpus and (never := _why_not_12(gpus)):
        raise InstallationError(f"{never}; CUDA=0 takes the build for CPUs")
    title = f"the build for CUDA 12.6{f', as {too_new}' if too_new else ''}"
    reach = f"see pip's lines above; TORCH_INDEX= names another index than {index} (a mirror of it)"
    asked = ("--extra-index-url", f"{index}/cu126", f"torch=={version}+cu126")
    return Build(title=title, attempts=(asked,), otherwise=reach)


def _for_cpus(version: str, index: str) -> Build:
    """From the indexes that pip knows, else from torch's own, else the registry's after all, which runs on CPUs too."""
    own = ("--retries", "1", "--timeout", "20", "--extra-index-url", f"{index}/cpu")
    attempts = ((f"torch=={version}+cpu",), (*own, f"torch=={version}+cpu"), (f"torch=={version}",))
    return Build(title="the build for CPUs", attempts=attempts, otherwise="see pip's lines above")


def _why_not_13(gpus: Gpus) -> str | None:
    """Why a CUDA 13 build does not run on these."""
    if not gpus.serves(13):
        return f"the driver {gpus.driver} serves CUDA 12 at most (13 needs {OLDEST_DRIVER[13]} or newer)"
    old = [one for one in gpus.capabilities if one < OLDEST_CAPABILITY_OF_CUDA_13]
    if old:
        return f"a GPU has compute capability {old[0]} (CUDA 13 begins with {OLDEST_CAPABILITY_OF_CUDA_13})"
    return None


def _why_not_12(gpus: Gpus) -> str | None:
    """Why the CUDA 12.6 build does not run on these."""
    if not gpus.serves(12):
        return (
            f"the driver {gpus.driver} is too old for any build (CUDA 12 needs {OLDEST_DRIVER[12]} or newer): update it"
        )
    new = [one for one in gpus.capabilities if one >= NEWEST_CAPABILITY_OF_CUDA_12 + 1]
    if new:
        most = f"the build for CUDA 12.6 ends with {NEWEST_CAPABILITY_OF_CUDA_12}"
        return f"a GPU has compute capability {new[0]} ({most}); it needs CUDA 13 and a driver of {OLDEST_DRIVER[13]}"
    return None
