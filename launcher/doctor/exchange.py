"""Starts ranks on this machine and measures how fast they communicate."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping

from launcher.doctor.finding import Finding, fault, good

SECONDS = 120
"""Time limit of the whole check; most of the time goes to importing torch."""
MEND = (
    "set GLOO_SOCKET_IFNAME to the network interface (on one machine: lo), and NCCL_SOCKET_IFNAME on GPUs; "
    "let the firewall pass TCP between the machines"
)


def exchange(environ: Mapping[str, str], *, gpus: int) -> Iterator[Finding]:
    """Start ranks that exchange tensors: one per GPU if there are several, else two on the CPU.

    Args:
        environ: environment of this process.
        gpus: number of GPUs that ranks can use.
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
                yield fault("ranks", f"{number} ranks cannot communicate: {last.strip()[:200]}", MEND)
                return
    except subprocess.TimeoutExpired:
        yield fault("ranks", f"{number} ranks did not connect within {SECONDS} s", MEND)
        return
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    yield from _figures(json.loads(said[0].splitlines()[-1]), number)


def _figures(figures: Mapping[str, float | str | None], number: int) -> Iterator[Finding]:
    """What rank 0 has measured."""
    for backend in ("gloo", "nccl", "shared memory"):
        if (speed := figures.get(f"{backend} bytes_per_second")) is not None:
            delay = 1e3 * float(figures[f"{backend} seconds"] or 0)
            yield good(
                "ranks", f"{number} by {backend}: 4 bytes in {delay:.2f} ms, 16 MiB at {float(speed) / 1e9:.2f} GB/s"
            )


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return int(found.getsockname()[1])


def environment_without_torchrun() -> dict[str, str]:
    """The environment of this process without torchrun's variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("TORCHELASTIC_", "PET_"))}
