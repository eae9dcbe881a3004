"""Starts ranks on this machine, which exchange tensors and measure how fast."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from configs.process.environment import PRIVATE, private_folder
from zeromt.doctor.checks import Finding

SECONDS = 120
"""Time limit of the whole check; most of the time goes to importing torch."""
LARGE_BYTES = 16 << 20
FIX = (
    "set GLOO_SOCKET_IFNAME to the network interface (on one machine: lo), and NCCL_SOCKET_IFNAME on GPUs; "
    "let the firewall pass TCP between the machines"
)


def exchange(*, gpus: int) -> Iterator[Finding]:
    """Start ranks that exchange tensors: one per GPU if there are several, else two on the CPU.

    Args:
        gpus: number of GPUs that ranks can use.
    """
    number = gpus if gpus > 1 else 2
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHELASTIC_", "PET_"))}
    variables |= {"WORLD_SIZE": str(number), "LOCAL_WORLD_SIZE": str(number), "OMP_NUM_THREADS": "1"}
    variables |= {"NCCL_DEBUG": "WARN"}  # with INFO it writes pages to standard output, more than a pipe holds
    variables |= {} if gpus > 1 else {"CUDA_VISIBLE_DEVICES": ""}
    with private_folder() as private:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-P", "-m", "zeromt.doctor.exchange"],
                env={**variables, PRIVATE: str(private), "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                errors="replace",
            )
            for rank in range(number)
        ]
        try:
            told = [found_in(rank.communicate(timeout=SECONDS)[0]) for rank in ranks]
        except subprocess.TimeoutExpired:
            yield Finding("ranks", "fault", f"{number} ranks did not connect within {SECONDS} s", FIX)
            return
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    if any(rank.returncode for rank in ranks):
        why = next((found["error"] for found in told if "error" in found), "they were killed")
        yield Finding("ranks", "fault", f"{number} ranks cannot communicate: {why}", FIX)
        return
    for backend, (delay, speed) in told[0].items():
        said = f"{number} by {backend}: 4 bytes in {1e3 * delay:.2f} ms, 16 MiB at {speed / 1e9:.2f} GB/s"
        yield Finding("ranks", "good", said)


def found_in(out: str) -> dict[str, Any]:
    """What a rank has printed, among what libraries write (NCCL its version)."""
    found: dict[str, Any] = json.loads(next((line for line in out.splitlines() if line.startswith("{")), "{}"))
    return found


def measure() -> dict[str, tuple[float, float]]:
    """As each of several ranks: seconds of a small all-reduce and bytes a second of a large one, by backend."""
    import torch
    import torch.distributed as dist

    from trainer.ranks.device import backend
    from trainer.ranks.distributed import World
    from trainer.ranks.process import stay_on_this_machine

    stay_on_this_machine()
    world = World(timeout_minutes=1.5)
    groups = {"gloo": dist.new_group(backend="gloo"), backend(world.device): dist.group.WORLD}
    figures = {}
    for name, group in groups.items():
        device = torch.device("cpu") if name == "gloo" else world.device
        seconds = []
        for size in (1, LARGE_BYTES // 4):
            tensor = torch.zeros(size, device=device)
            for _ in range(5):  # the last counts
                begin = time.perf_counter()
                dist.all_reduce(tensor, group=group)
                tensor[0].item()  # which waits for a device
            seconds.append(time.perf_counter() - begin)
        figures[name] = (seconds[0], LARGE_BYTES / seconds[1])
    world.barrier()
    world.close()
    return figures


if __name__ == "__main__":
    try:
        print(json.dumps(measure()), flush=True)
    except Exception as error:
        print(json.dumps({"error": (str(error).splitlines() or [type(error).__name__])[-1][:200]}), flush=True)
        sys.exit(1)
