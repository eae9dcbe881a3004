"""Starts ranks on this machine and measures how fast they communicate."""

import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from configs.process.environment import PRIVATE, private_folder
from zeromt.doctor.finding import Finding, fault, good

SECONDS = 120
"""Time limit of the whole check; most of the time goes to importing torch."""
LARGE_BYTES = 16 << 20
MEND = (
    "set GLOO_SOCKET_IFNAME to the network interface (on one machine: lo), and NCCL_SOCKET_IFNAME on GPUs; "
    "let the firewall pass TCP between the machines"
)
_LOG_LINE = re.compile(r"(\[rank\d+\]:)?\s*\[[WIE]\d{4} ")
"""Begins what torch's C++ logs, such as its warning at the exit of a rank that failed over NCCL."""


def exchange(environ: Mapping[str, str], *, gpus: int) -> Iterator[Finding]:
    """Start ranks that exchange tensors: one per GPU if there are several, else two on the CPU.

    Args:
        environ: environment of this process.
        gpus: number of GPUs that ranks can use.
    """
    with private_folder() as private:
        yield from _exchange({**environ, PRIVATE: str(private)}, gpus if gpus > 1 else 2, gpus=gpus)


def _exchange(environ: Mapping[str, str], number: int, *, gpus: int) -> Iterator[Finding]:
    variables = {**environ, "WORLD_SIZE": str(number), "LOCAL_WORLD_SIZE": str(number)}
    variables |= {"OMP_NUM_THREADS": "1"} | ({} if gpus > 1 else {"CUDA_VISIBLE_DEVICES": ""})
    variables["NCCL_DEBUG"] = "WARN"  # with INFO it writes pages to standard output, more than a pipe holds
    command = [sys.executable, "-P", "-m", "zeromt.doctor.exchange"]
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
                said_last = last_words(err) or f"exit {rank.returncode}"
                yield fault("ranks", f"{number} ranks cannot communicate: {said_last[:200]}", MEND)
                return
    except subprocess.TimeoutExpired:
        yield fault("ranks", f"{number} ranks did not connect within {SECONDS} s", MEND)
        return
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    yield from _figures(figures_in(said[0]), number)


def last_words(err: str) -> str:
    """The last line of a rank's standard error that is not of a log; empty if there is none."""
    lines = [line.strip() for line in err.splitlines() if line.strip() and not _LOG_LINE.match(line)]
    return lines[-1] if lines else ""


def figures_in(out: str) -> dict[str, float]:
    """What rank 0 has measured, from its standard output, where libraries write too (NCCL its version)."""
    figures: dict[str, float] = json.loads(next(line for line in out.splitlines() if line.startswith("{")))
    return figures


def _figures(figures: Mapping[str, float], number: int) -> Iterator[Finding]:
    """What rank 0 has measured."""
    for backend in ("gloo", "nccl"):
        if (speed := figures.get(f"{backend} bytes_per_second")) is not None:
            delay = 1e3 * figures[f"{backend} seconds"]
            yield good("ranks", f"{number} by {backend}: 4 bytes in {delay:.2f} ms, 16 MiB at {speed / 1e9:.2f} GB/s")


def environment_without_torchrun() -> dict[str, str]:
    """The environment of this process without torchrun's variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("TORCHELASTIC_", "PET_"))}


def main() -> None:
    """As each of several ranks: meet the others, and measure. Rank 0 prints one JSON object."""
    import torch
    import torch.distributed as dist

    from trainer.ranks.device import backend
    from trainer.ranks.distributed import World
    from trainer.ranks.process import stay_on_this_machine

    stay_on_this_machine()
    world = World(timeout_minutes=1.5)
    figures: dict[str, float] = {}
    groups = {"gloo": dist.new_group(backend="gloo")}
    if backend(world.device) != "gloo":
        groups[backend(world.device)] = dist.group.WORLD
    for name, group in groups.items():
        device = torch.device("cpu") if name == "gloo" else world.device
        small, large = torch.zeros(1, device=device), torch.zeros(LARGE_BYTES // 4, device=device)
        figures[f"{name} seconds"] = _seconds(small, group)
        figures[f"{name} bytes_per_second"] = LARGE_BYTES / _seconds(large, group)
    if world.is_main:
        print(json.dumps(figures), flush=True)
    world.barrier()
    world.close()


def _seconds(tensor: Any, group: Any) -> float:
    """Of an all-reduce: the median of several, after one warm-up."""
    import torch.distributed as dist

    taken = []
    for _ in range(8):
        begin = time.perf_counter()
        dist.all_reduce(tensor, group=group)
        tensor[0].item()  # which waits for a device
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken[1:])


if __name__ == "__main__":
    main()
