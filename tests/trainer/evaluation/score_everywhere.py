"""Scores one checkpoint under every ZeRO stage: `score_everywhere.py CONFIG OUTPUT`, as any number of ranks."""

import json
import sys
from pathlib import Path

from configs import load_run
from trainer.build import build
from trainer.ranks.distributed import World
from trainer.ranks.process import tune_process


def main() -> None:
    tune_process()
    world = World(timeout_minutes=2)
    config, output = sys.argv[1:]
    scores = {}
    for stage in range(4):
        # parameters are released at once, as those of a large model are
        zero = "{stage3_max_live_parameters: 0, stage3_max_reuse_distance: 0, stage3_param_persistence_threshold: 0}"
        extra = [f"engine.zero_optimization={zero}"] if stage == 3 else []
        # a run that has reached its limit has nothing to do, and is not built
        run = load_run(
            config, [f"engine.zero_stage={stage}", "training.tensorboard=false", "training.max_updates=301", *extra]
        )
        built = build(run, world, stop_requested=lambda: False)
        assert built.resumed_step == 300
        evaluation = built.evaluator.evaluate(built.engine, step=300)
        assert evaluation is not None
        scores[stage] = {
            "bleu": evaluation.scores["bleu"].value,
            "chrf": evaluation.scores["chrf"].value,
            "signature": evaluation.scores["bleu"].signature,
            "loss": evaluation.loss,
            "hypotheses": list(evaluation.hypotheses),
        }
        built.close()
    if world.is_main:
        Path(output).write_text(json.dumps(scores))
    world.close()


if __name__ == "__main__":
    main()
