"""Memory checks before the first update: tries the largest shapes, and settles the budgets of the run."""

import dataclasses
import logging
from collections.abc import Sequence

from configs import RunConfig, load_saved
from data_pipeline.prepared.dataset import Dataset
from trainer.checkpoint.format import Checkpoint
from trainer.engines.protocol import Engine
from trainer.evaluation.evaluator import Evaluator
from trainer.ranks.distributed import World
from trainer.ranks.precision import agreed_layout
from trainer.runs.layout import CONFIG
from trainer.stability import memory

log = logging.getLogger(__name__)


def settle_memory(
    config: RunConfig,
    datasets: Sequence[Dataset],
    engine: Engine,
    evaluator: Evaluator,
    world: World,
    checkpoint: Checkpoint | None,
) -> RunConfig:
    """Check that the largest shapes fit the device next to the evaluator's model, and that a search fits without them.

    A new run with `training.fit_memory` uses the largest budgets that fit.

    Raises:
        UserError: they do not, naming the settings to lower.
    """
    engine.layout_kind, engine.why_padded = agreed_layout((engine.layout_kind, engine.why_padded), world)
    if config.evaluation.every_updates and (config.training.fit_memory or config.training.memory_probe):
        evaluator.prepare()  # it stays allocated from the first evaluation on
    longest = [max(int(d.blocks[f"longest_{side}"].max()) + 1 for d in datasets) for side in ("source", "target")]
    if config.training.fit_memory:
        if checkpoint is not None:
            budgets = load_saved(checkpoint.folder / CONFIG, any_version=True).stream
            tokens = budgets.source_tokens, budgets.target_tokens
        else:
            tokens = memory.fit(engine, config, longest=longest, world=world)
            left = f"{memory.MARGIN:.0%} of it stay free"
            log.info("budgets that fit the memory: %d source tokens, %d target tokens; %s", *tokens, left)
        stream = dataclasses.replace(config.stream, source_tokens=tokens[0], target_tokens=tokens[1])
        config = dataclasses.replace(config, stream=stream)
    engine.merged_lanes = memory.lanes_to_merge(engine, config, longest=longest, world=world)
    if config.training.memory_probe:
        memory.probe(engine, config, longest=longest, world=world)
        held = evaluator.bytes_to_come(config.model, sum(engine.parameter_sizes().values()))
        memory.probe_evaluation(held, config, world)
    return config
