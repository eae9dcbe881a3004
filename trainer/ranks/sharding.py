"""Checks, before DeepSpeed is imported, that it can shard as configured on the existing ranks."""

import os

from configs import EngineSection, UserError
from configs.zero_keys import check_ranks, needs_quantizer
from trainer.ranks.device import is_host
from trainer.ranks.distributed import World


def check_engine(section: EngineSection, world: World) -> None:
    """Refuse what DeepSpeed cannot do on these ranks, in one line, before it is imported.

    Raises:
        UserError: naming the key and what is allowed.
    """
    keys = section.zero_optimization
    check_ranks(keys, ranks=world.size, on_each=int(os.environ.get("LOCAL_WORLD_SIZE", world.size)))
    if (key := needs_quantizer(keys)) is not None and (problem := _why_no_quantizer(world)) is not None:
        raise UserError(f"engine.zero_optimization.{key}: true {problem}; allowed here is false")


def _why_no_quantizer(world: World) -> str | None:
    if is_host(world.device):
        return "on a CPU, which DeepSpeed's quantizer has no kernel for"
    from torch.utils.cpp_extension import CUDA_HOME  # which looks for it

    return None if CUDA_HOME else "without a CUDA toolkit, by which DeepSpeed compiles its quantizer"
