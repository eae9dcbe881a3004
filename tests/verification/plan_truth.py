"""`zeromt plan` beside the real engine: bytes of every rank on 1, 2 and 4 CPU ranks, at every stage.

python -m tests.verification.plan_truth [--ranks 1 2 4] [--json FILE]
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.child import ROOT, environment
from configs import RunConfig, UserError
from model.parameters import Vocabularies, parameters
from tests.verification.engine_bytes import CASES, SECTION, SLOTS, VOCABULARY, Case
from zeromt.planning.costs.communication import communication_volume
from zeromt.planning.costs.memory import MemoryModel, Setting
from zeromt.planning.costs.model_states import Layout, model_states

VOCABULARIES = Vocabularies(source=VOCABULARY, target=VOCABULARY)
Pair = tuple[int, int]
"""Planned and measured bytes."""


def measure(world_size: int, *, timeout: float = 900) -> list[dict[str, Any]]:
    """What every rank of so many found of every case, by the case's name; see `engine_bytes`.

    Raises:
        UserError: the ranks failed, or took too long and were ended.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "of"
        torchrun = ["-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={world_size}"]
        torchrun += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
        command = [
            sys.executable,
            *(torchrun if world_size > 1 else []),
            "-m",
            "tests.verification.engine_bytes",
            str(out),
        ]
        with (Path(folder) / "log").open("w+b") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment(), stdout=log, stderr=log, start_new_session=True
            )
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGTERM)  # torchrun ends its workers
                    process.wait()
            if code != 0:
                log.seek(0)
                raise UserError(f"{world_size} ranks: exit code {code}\n{log.read()[-3000:].decode()}")
        return [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(world_size)]


def compare_bytes(case: Case, found: dict[str, Any], *, world_size: int, rank: int) -> dict[str, Pair]:
    """Bytes by part; device and host together, which on a CPU are the same."""
    layout = Layout(
        parameters(SECTION, VOCABULARIES),
        case.engine_section(),
        precision=case.precision,
        world_size=world_size,
        rank=rank,
        num_moments=2 + case.keeps_ema,
    )
    states = model_states(layout)
    return {
        "weights": (states.weights, found["rest"]["weights"]),
        "weights in use": (states.weights + states.live_weights, found["live"]),
        "gradients": (states.gradients + states.host_gradients, found["gradients"]),
        "optimizer": (states.optimizer + states.host_optimizer, found["rest"]["optimizer"]),
    }


def compare_volume(case: Case, found: dict[str, Any], *, world_size: int) -> dict[str, Pair]:
    """Bytes that went into collectives during an update."""
    model = MemoryModel(RunConfig(engine=case.engine_section(), model=SECTION), VOCABULARIES, precision=case.precision)
    setting = Setting(stage=case.stage, offload=case.offload, checkpointing=False)
    planned, sent = communication_volume(model, setting, world_size=world_size, num_slots=SLOTS), found["sent"]
    return {
        "reduced": (planned.all_reduced, sent["all_reduce"]),
        "gathered": (planned.gathered, sent["all_gather_into_tensor"] + sent["all_gather"]),
        "scattered": (planned.scattered, sent["reduce_scatter_tensor"] + sent["reduce_scatter"]),
    }


def off(pair: Pair) -> float:
    """The plan's relative error."""
    planned, measured = pair
    return 0.0 if planned == measured else abs(planned - measured) / max(measured, 1)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    figures = []
    print(f"{'ranks':>5}  {'case':<15}  " + "  ".join(f"{p:>20}" for p in ("weights", "gradients", "optimizer")), "off")
    for world_size in options.ranks:
        ranks = measure(world_size)
        for case in CASES:
            rows = [compare_bytes(case, r[case.name], world_size=world_size, rank=n) for n, r in enumerate(ranks)]
            worst = max(off(pair) for row in rows for pair in row.values())
            shown = ["{:,} {:,}".format(*rows[0][part]) for part in ("weights", "gradients", "optimizer")]
            print(f"{world_size:>5}  {case.name:<15}  " + "  ".join(f"{s:>20}" for s in shown), f"{worst:.4%}")
            figures.append({"ranks": world_size, "case": case.name, "bytes": rows, "worst": worst})
    print("planned and measured bytes of rank 0; off: the worst part of all ranks")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
