"""What ranks can send each other on this machine, and how fast: tried by ranks."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping

from launcher.doctor.finding import Finding, fault, good

SECONDS = 120
"""Importing torch takes most of them."""
MEND = (
    "choose the interface by GLOO_SOCKET_IFNAME (on one machine: lo), and NCCL_SOCKET_IFNAME on GPUs; "
    "let a firewall pass TCP among the machines"
)


def exchange(environ: Mapping[str, str], *, gpus: int) -> Iterator[Finding]:
    """Start ranks that exchange tensors: one for each GPU where there are several, else two on the CPU.

    Args:
        environ: of this process.
        gpus: that ranks can use.
    """
    number = gpus if gpus > 1 else 2
    variables = {**environ, "MASTER_ADDR": "localhost", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(number)}
    variables |= {"OMP_NUM_THREADS": "1"} | ({} if gpus > 1 else {"CUDA_VISIBLE_DEVICES": ""})
    command = [sys.executable, "-P", "-m", "trainer.engines.exchange"]
    ranks = [
        subprocess.Popen(
            command,
            env={**variables, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        for rank in range(number)
    ]
    said = [""] * number
    try:
        for at, rank in enumerate(ranks):
            out, err = rank.communicate(timeout=SECONDS)
            said[at] = out if rank.returncode == 0 else ""
            if rank.returncode != 0:
                last = next((line for line in reversed(err.splitlines()) if line.strip()), f"exit {rank.returncode}")
                yield fault("ranks", f"{number} ranks cannot send each other anything: {last.strip()[:200]}", MEND)
                return
    except subprocess.TimeoutExpired:
        yield fault("ranks", f"{number} ranks have not met within {SECONDS} s", MEND)
        return
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    yield from _figures(json.loads(said[0].splitlines()[-1]), number)


def _figures(figures: Mapping[str, float | str | None], number: int) -> Iterator[Finding]:
    """What rank 0 has measured."""
    for way in ("gloo", "nccl", "shared memory"):
        if (speed := figures.get(f"{way} bytes_per_second")) is not None:
            delay = 1e3 * float(figures[f"{way} seconds"] or 0)
            yield good(
                "ranks", f"{number} by {way}: 4 bytes in {delay:.2f} ms, 16 MiB at {float(speed) / 1e9:.2f} GB/s"
            )


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return int(found.getsockname()[1])


def variables_of_ranks() -> dict[str, str]:
    """The environment, without what a launcher of ranks has put in."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("TORCHELASTIC_", "PET_"))}
