"""`python -m trainer.engines.exchange`, started as each of several ranks: measures how fast they communicate.

Rank 0 prints one JSON object. Each figure is the median of several all-reduces; bytes are those of one rank's tensor.
"""

import json
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from trainer.engines.shared_memory import SharedMemory
from trainer.ranks.device import backend
from trainer.ranks.distributed import World
from trainer.ranks.process import stay_on_this_machine

TIMES = 7
LARGE_BYTES = 16 << 20


def main() -> None:
    """Meet the others, and measure."""
    stay_on_this_machine()
    world = World(timeout_minutes=1.5)
    figures: dict[str, float] = {}
    groups = {"gloo": dist.new_group(backend="gloo")}
    if backend(world.device) != "gloo":
        groups[backend(world.device)] = dist.group.WORLD
    for name, group in groups.items():
        device = torch.device("cpu") if name == "gloo" else world.device
        small, large = torch.zeros(1, device=device), torch.zeros(LARGE_BYTES // 4, device=device)
        figures[f"{name} seconds"] = seconds(lambda t=small, g=group: dist.all_reduce(t, group=g))  # type: ignore[misc]
        took = seconds(lambda t=large, g=group: dist.all_reduce(t, group=g))  # type: ignore[misc]
        figures[f"{name} bytes_per_second"] = LARGE_BYTES / took
    if world.device.type == "cpu" and (memory := SharedMemory.of_all_ranks()) is not None:
        small, large = torch.zeros(1), torch.zeros(LARGE_BYTES // 4)
        figures["shared memory seconds"] = seconds(lambda: memory.all_reduce(small))
        figures["shared memory bytes_per_second"] = LARGE_BYTES / seconds(lambda: memory.all_reduce(large))
    if world.is_main:
        print(json.dumps(figures), flush=True)
    world.barrier()
    world.close()


def seconds(send: Callable[[], object]) -> float:
    """The median of several runs, after one warm-up."""
    taken = []
    for _ in range(TIMES + 1):
        begin = time.perf_counter()
        send()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken[1:])


if __name__ == "__main__":
    main()
