"""Kernels, collectives and host waits of an update by ZeRO stage, and Python calls, without a GPU; prints JSON.

    python -m benchmarks.device.budget vaswani_base

One rank of several runs the trainer's loop and DeepSpeed's engine on the pseudo device of the tests, in bf16 with
clipping, at the preset's full size, on small micro-batches: the number of kernels does not depend on their shape.
Operators that launch a kernel are counted, and what is sent to other ranks, which are not there (torch's `fake`
group). How long they take only a GPU can say. The Python calls of a pass are those of the model alone.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.device.budget_calls import KERNELS, count_pass, without_kernels
from benchmarks.device.budget_counts import LoneWorld, added, collectives, count_update, counts
from benchmarks.device.budget_model import SMALL, count_model
from configs import EngineSection, RunConfig, preset_model

VOCABULARY = 37_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("preset", help="a preset of configs/presets")
    options.add_argument("--ranks", type=int, default=8, metavar="N")
    options.add_argument("--stages", type=int, nargs="+", choices=range(4), default=list(range(4)))
    options.add_argument("--kernels", choices=KERNELS, default="cuda", help="packed rows, or plain PyTorch")
    options.add_argument("--offload", action="store_true", help="put the optimizer on the host, from stage 1 on")
    args = options.parse_args(arguments)
    with without_kernels():  # before DeepSpeed changes torch's modules
        calls = {kernels: count_pass(args.preset, kernels) for kernels in KERNELS}
    section = preset_model(args.preset)
    model = count_model(section, shape=SMALL, vocab=VOCABULARY, kernels=args.kernels)
    report: dict[str, Any] = {"kernels of the model": [m.num_kernels for m in model], "Python calls": calls}
    world = LoneWorld(args.ranks // 2, args.ranks)  # a middle one, because the first has few, large tensors
    for stage in args.stages:
        engine = EngineSection(zero_stage=stage, offload_optimizer=args.offload and stage > 0, kernels=args.kernels)
        config = dataclasses.replace(RunConfig(), model=section, engine=engine)
        small = count_update(config, world, shape=SMALL, num_micro_batches=2, vocab=VOCABULARY)
        report[f"ZeRO-{stage}"] = {
            **counts(small, sum(m.num_kernels for m in model)),
            "sent": collectives(small),
            "lines": {
                "waits": small.update.waits,
                "uploads": small.update.uploads,
                "added": added(small.micro_batches[0], model),
                "step": small.step.kernels_by("line"),
            },
        }
    json.dump(report, sys.stdout, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
