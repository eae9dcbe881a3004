"""Starts ranks on this machine, which exchange tensors."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from configs.process.environment import PRIVATE, private_folder
from zeromt.doctor.checks import Finding

SECONDS = 120
"""Time limit of the whole check; most of the time goes to importing torch."""
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
            answers = [answer_of(rank.communicate(timeout=SECONDS)[0]) for rank in ranks]
        except subprocess.TimeoutExpired:
            yield Finding("ranks", "fault", f"{number} ranks did not connect within {SECONDS} s", FIX)
            return
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    if any(rank.returncode for rank in ranks):
        why = next((answer["error"] for answer in answers if "error" in answer), "they were killed")
        yield Finding("ranks", "fault", f"{number} ranks cannot communicate: {why}", FIX)
        return
    yield Finding("ranks", "good", f"{number} ranks exchange tensors by {' and '.join(answers[0]['backends'])}")


def answer_of(out: str) -> dict[str, Any]:
    """What a rank has printed, among what libraries write (NCCL its version)."""
    answer: dict[str, Any] = json.loads(next((line for line in out.splitlines() if line.startswith("{")), "{}"))
    return answer


def meet() -> list[str]:
    """As each of several ranks: exchange a tensor by gloo and by the device's backend; the names of both."""
    import torch
    import torch.distributed as dist

    from trainer.ranks.device import backend
    from trainer.ranks.distributed import World
    from trainer.ranks.process import stay_on_this_machine

    stay_on_this_machine()
    world = World(timeout_minutes=1.5)
    groups = {"gloo": dist.new_group(backend="gloo"), backend(world.device): dist.group.WORLD}
    for name, group in groups.items():
        tensor = torch.ones(1, device=torch.device("cpu") if name == "gloo" else world.device)
        dist.all_reduce(tensor, group=group)
        tensor.item()  # which waits for a device
    world.barrier()
    world.close()
    return list(groups)


if __name__ == "__main__":
    try:
        print(json.dumps({"backends": meet()}), flush=True)
    except Exception as error:
        print(json.dumps({"error": (str(error).splitlines() or [type(error).__name__])[-1][:200]}), flush=True)
        sys.exit(1)
