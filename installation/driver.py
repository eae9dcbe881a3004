"""Which CUDA the GPUs of this machine can run, told by their driver before gigabytes are fetched."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

OLDEST_DRIVER = {13: 580, 12: 525}
"""The first driver for each major version of CUDA, all minor ones included (NVIDIA's CUDA compatibility guide)."""
PROC = Path("/proc/driver/nvidia")


@dataclass(kw_only=True, slots=True, frozen=True)
class Gpus:
    """The GPUs of a machine, as far as the driver tells."""

    driver: str | None
    """Its version, such as "535.104.05"; None if unknown."""
    capabilities: tuple[float, ...]
    """Compute capabilities, such as 7.0; empty if unknown."""

    def serves(self, cuda: int) -> bool:
        """Whether the driver is new enough for this major version of CUDA; an unknown driver is."""
        return self.driver is None or int(self.driver.partition(".")[0]) >= OLDEST_DRIVER[cuda]


def gpus(proc: Path = PROC) -> Gpus | None:
    """The GPUs of this machine; None if it shows none.

    Args:
        proc: the driver's folder, read if nvidia-smi is missing or fails, as in containers.
    """
    drivers = _ask("driver_version")
    if not drivers:
        if not any(proc.glob("gpus/*")):
            return None
        versions = [path.read_text(encoding="utf-8") for path in proc.glob("version")]
        drivers = re.findall(r"\b\d{3,}(?:\.\d+)+\b", "".join(versions))
    known = [line for line in drivers if re.fullmatch(r"\d+(\.\d+)*", line)]
    capabilities = [float(line) for line in _ask("compute_cap") if re.fullmatch(r"\d+\.\d+", line)]
    return Gpus(driver=known[0] if known else None, capabilities=tuple(capabilities))


def _ask(field: str) -> list[str]:
    """What nvidia-smi says of each GPU; nothing if it fails or does not know the field."""
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines()] if done.returncode == 0 else []
