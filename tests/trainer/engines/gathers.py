"""Holds `gather_by_broadcasts` against torch's own, as any number of ranks."""

import torch
from torch import distributed

from trainer.engines.deepspeed.patches import gather_by_broadcasts
from trainer.ranks.distributed import World


def main() -> None:
    world = World(timeout_minutes=2)
    outer = distributed.new_group([0, world.size - 1])
    num_compared = 0
    for group, size in ((None, world.size), (outer, 2)):
        if group is not None and world.rank not in (0, world.size - 1):
            continue
        own = distributed.get_rank(group)
        for dtype in (torch.float32, torch.bfloat16):
            for is_in_place in (False, True):
                for is_async in (False, True):
                    part = (torch.arange(7) + 10.5 * world.rank).to(dtype)
                    expected, found = (torch.full((7 * size,), -1.0, dtype=dtype) for _ in range(2))
                    distributed.all_gather_into_tensor(expected, part, group=group)
                    if is_in_place:
                        found[7 * own : 7 * own + 7] = part
                        part = found[7 * own : 7 * own + 7]
                    work = gather_by_broadcasts(found, part, group=group, async_op=is_async)
                    if is_async:
                        assert work is not None
                        work.wait()
                        assert work.is_completed()
                    assert torch.equal(found, expected), (group, dtype, is_in_place, is_async)
                    assert len(set(found.tolist())) == 7 * size
                    num_compared += 1
    print(f"{world.rank} {num_compared}\n", end="", flush=True)  # in one write: the ranks share a pipe
    world.close()


if __name__ == "__main__":
    main()
