"""Ranks of which rank 1 says that it computes on something else; as any number of ranks."""

import os
import sys
from dataclasses import replace

from configs import UserError
from trainer.ranks import device, distributed
from trainer.ranks.device import Found
from trainer.runs.process.environment import read_environment


def main(which: str) -> None:
    rank, _, _ = read_environment(os.environ)
    gpu = Found(host=f"host{rank}", kind="cuda", cuda="13.0", card="H100", gigabytes=80)
    other = {
        "cpu": Found(host="host1", kind="cpu"),
        "version": replace(gpu, cuda="12.6"),
        "card": replace(gpu, card="A100"),
        "same": gpu,
    }[which]
    vars(distributed)["describe"] = lambda _: other if rank == 1 else gpu
    device.log.warning = lambda *told: print(*told, flush=True)  # type: ignore[method-assign]
    try:
        distributed.World(timeout_minutes=1).close()
    except UserError as error:
        print(f"{rank}: {error}\n", end="", flush=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main(sys.argv[1])
