"""What ranks agree on as the precision, when rank 1 alone has a CPU that is slower in bf16; as any number of ranks."""

from model.kernels import cpu
from trainer.ranks import precision
from trainer.ranks.distributed import World


def main() -> None:
    world = World(timeout_minutes=2)
    cpu.gains_by_bf16 = lambda: world.rank != 1
    found = [precision.agreed_precision(asked, world) for asked in ("auto", "bf16", "fp32")]
    print(f"{world.rank} {' '.join(found)}\n", end="", flush=True)  # in one write: the ranks share a pipe
    world.close()


if __name__ == "__main__":
    main()
