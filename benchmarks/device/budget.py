"""Kernels and waits of an update by ZeRO stage, and the MFU that they allow on an H100: counted without a GPU.

    python -m benchmarks.device.budget --preset vaswani_base

One rank of several runs the trainer's own loop and DeepSpeed's engine on the pseudo device of the tests, in bf16 and
with clipping, at the preset's own size and without numbers. What is counted are operators that launch a kernel; the time
of each is a roofline's (`budget_roofline.py`, which states the constants). Nothing of it was measured on a GPU: every line
says so.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.common.measure import parser, print_table, write_json
from benchmarks.device.budget_counts import Counted, Shape, added, count_model, count_update, lone_rank
from benchmarks.device.budget_roofline import by_operator, estimate, padded, usual_micro_batch
from benchmarks.device.work import flops_per_target_token
from configs import EngineSection, RunConfig, UserError, model_section, preset_model
from trainer.ranks.distributed import World

SMALL = Shape(rows=4, source=8, target=8)
"""Kernels do not depend on the shape, except that the loss of a large micro-batch is formed in chunks."""
STAGE_OF = {"vaswani_base": 1, "vaswani_big": 2}
"""Of the runs that are shipped with these presets."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0."""
    args = _arguments(arguments)
    changes = {} if args.layers is None else {"encoder_layers": args.layers, "decoder_layers": args.layers}
    section = preset_model(args.preset, changes)
    config = dataclasses.replace(RunConfig(), model=section)
    assert config.optimizer.clip_norm > 0
    forward, backward = count_model(section, shape=SMALL, vocab=args.vocab)
    model = forward.num_kernels + backward.num_kernels
    world = lone_rank(0, args.ranks)
    stages, rows, details = {}, [], {}
    for stage in args.stages:
        offload = args.offload and stage > 0
        config = dataclasses.replace(config, engine=EngineSection(zero_stage=stage, offload_optimizer=offload))
        found = count_update(
            config, world, shape=SMALL, num_micro_batches=args.micro_batches, vocab=args.vocab, has_numbers=False
        )
        stages[str(stage)] = figures = {**counts(found, model), "mfu_estimated": {}}
        details[str(stage)] = {
            "waits": dict(found.update.waits),
            "uploads": dict(found.update.uploads),
            "added": dict(added(found.micro_batches[0], (forward, backward)).most_common()),
            "step": dict(found.step.by_line().most_common()),
        }
        for tokens in args.tokens:
            rows.append(_estimated(config, world, args, tokens))
            figures["mfu_estimated"][str(tokens)] = rows[-1]["mfu"]
    chosen = STAGE_OF.get(args.preset, args.stages[0])
    chosen = chosen if chosen in args.stages else args.stages[0]
    _print(args, (forward.num_kernels, backward.num_kernels), stages, rows, details)
    figures = {
        "kernels": {"forward": forward.num_kernels, "backward": backward.num_kernels},
        "stages": stages,
        "mfu_estimated": stages[str(chosen)]["mfu_estimated"],
        "stage_of_mfu": chosen,
        "settings": {k: getattr(args, k) for k in ("preset", "layers", "vocab", "ranks", "micro_batches", "offload")},
        "roofline": rows,
        "lines": details,
    }
    write_json(args.json, figures)
    return 0


def counts(found: Counted, model: int) -> dict[str, int]:
    """Kernels that DeepSpeed adds to the first micro-batch of an update, and at most to a later one; of the step; waits."""
    more = [meter.num_kernels - model for meter in found.micro_batches]
    return {
        "added": more[0],
        "added_later": max(more[1:], default=more[0]),
        "step": found.step.num_kernels,
        "waits": found.update.num_waits,
    }
