"""How long training pauses for a checkpoint: saved in the background, and blocking.

Uses a DeepSpeed engine with a model of about 50 million parameters on one or two ranks. Both ways take turns in one
run, after an untimed save of each. Their files must be byte-identical. benchmarks/README.md explains the figures.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import measure
from benchmarks.common.child import ROOT, environment
from benchmarks.common.measure import run_main
from benchmarks.common.results import Row, figure, record
from configs import CheckpointSection, EngineSection, RunConfig, UserError, model_section
from trainer.runs.layout import step_folder

RANKS = "--ranks-of-benchmark"
WAYS = ("background", "blocking")
VOCABULARY = 16_000
MODEL = model_section(d_model=512, encoder_layers=6, decoder_layers=6, max_positions=256, dropout=0.0)
PIECES = 32
"""Length of each of the four sentences of an update."""


def main() -> int:
    """Start the ranks and print their figures; exit code 1 if the files differ."""
    parser = measure.parser(__doc__)
    parser.add_argument("--nproc", type=int, default=2, help="ranks (2)")
    parser.add_argument("--stage", type=int, default=2, help="ZeRO stage (2)")
    parser.add_argument("--rounds", type=int, default=5, help="timed saves of each way (5)")
    arguments = parser.parse_args()
    machine = measure.machine()
    measure.print_machine(machine)
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        figures = _start(arguments.nproc, arguments.stage, arguments.rounds, Path(work))
    _print(figures)
    settings = {"parameters": figures["num_parameters"], "bytes": figures["checkpoint_bytes"]}
    settings |= {"zero_stage": figures["stage"], "ranks": figures["ranks"]}
    record(arguments, "checkpoints", rows_of(figures), {"machine": machine, **figures}, settings=settings)
    return 0 if figures["same_bytes"] else 1


def rows_of(figures: dict[str, Any]) -> list[Row]:
    """The rows of the result file."""
    rounds = figures["rounds"]
    rows: list[Row] = [
        {
            "part": "saves",
            "way": way,
            "stands_still_seconds": figure(r[way]["stopped_seconds"] for r in rounds),
            "committed_seconds": figure(r[way]["seconds"] for r in rounds),
        }
        for way in WAYS
    ]
    ratio = figure(r["blocking"]["stopped_seconds"] / r["background"]["stopped_seconds"] for r in rounds)
    return [*rows, {"part": "ratio", "blocking_over_background": ratio}]


def _start(nproc: int, stage: int, rounds: int, work: Path) -> dict[str, Any]:
    """Start the ranks; returns the figures of rank 0."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={nproc}"]
    torchrun += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    ended = subprocess.run(
        [*torchrun, "-m", "benchmarks.training.saving", RANKS, str(stage), str(rounds), str(work)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise UserError(f"ranks: exit code {ended.returncode}\n{ended.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads((work / "figures.json").read_text())
    return figures


def _print(figures: dict[str, Any]) -> None:
    rounds = figures["rounds"]
    seconds = "{:.2f}".format
    print(f"\n{figures['num_parameters']:,} parameters, {figures['checkpoint_bytes']:,} bytes, ", end="")
    print(f"ZeRO-{figures['stage']} on {figures['ranks']} ranks, {len(rounds)} rounds")
    measure.print_table(
        "a save, seconds: median (lowest to highest)",
        [
            {
                "way": way,
                "training paused": measure.spread([r[way]["stopped_seconds"] for r in rounds]),
                "until committed": measure.spread([r[way]["seconds"] for r in rounds]),
                "updates meanwhile": measure.spread([r[way]["updates"] for r in rounds], ",.0f"),
            }
            for way in WAYS
        ],
    )
    ratios = [r["blocking"]["stopped_seconds"] / r["background"]["stopped_seconds"] for r in rounds]
    first = figures["first"]["background"]["stopped_seconds"]
    print(f"\nblocking / background, training paused: {measure.spread(ratios, '.1f')}")
    print(f"first save in the background, which allocates the memory for its copy: {seconds(first)} s")
    print(f"update without a save: {seconds(measure.median(figures['update_seconds']))} s")
    print(f"files of both ways: {'identical' if figures['same_bytes'] else 'DIFFERENT'}")
    for way in WAYS:
        print(f"  {way:<11} SHA-256 {figures['hashes'][way]}")


class _Rank:
    """The engine of one rank, and a checkpoint manager for each way."""

    def __init__(self, stage: int, work: Path) -> None:
        from model import Objective, SpecialIds, build_transformer
        from model.loss import CrossEntropy
        from trainer.checkpoint.manager import CheckpointManager, RunIdentity
        from trainer.engines.deepspeed.engine import DeepSpeedEngine
        from trainer.ranks.distributed import World

        self.world = World(timeout_minutes=10)
        sizes = {"source_vocab_size": VOCABULARY, "target_vocab_size": VOCABULARY}
        model = build_transformer(MODEL, **sizes, special=SpecialIds(pad=0, bos=1, eos=2), seed=1)
        self.engine = DeepSpeedEngine(
            Objective(model, CrossEntropy(0.1)).train(),
            section=EngineSection(zero_stage=stage),  # type: ignore[arg-type]
            optimizer=RunConfig().optimizer,
            precision="fp32",
            device=self.world.device,
            world_size=self.world.size,
        )
        identity = RunIdentity(config_yaml="", tokenizer_files={}, manifest={})
        sections = {w: CheckpointSection(keep_last=2, keep_best=0, asynchronous=w == "background") for w in WAYS}
        self._managers = {w: CheckpointManager(work / w, s, self.world, identity) for w, s in sections.items()}
        self._draw = np.random.default_rng(self.world.rank)

    def update(self) -> float:
        """Train on random tokens for one update; returns its seconds."""
        import torch

        from trainer.engines.protocol import DeviceBatch

        begin = time.monotonic()
        tokens = torch.from_numpy(self._draw.integers(3, VOCABULARY, (4, PIECES))).to(self.world.device)
        batch = DeviceBatch(source=tokens, target_input=tokens, target_output=tokens)
        self.engine.accumulate(batch, scale=1 / (tokens.numel() * self.world.size), is_last=True)
        self.engine.step(1e-4)
        self.world.barrier()
        return time.monotonic() - begin

    def save(self, way: str, step: int) -> dict[str, float]:
        """Save once, and train until all ranks have written; returns seconds and number of updates."""
        checkpoints, updates = self._managers[way], 0
        self.world.barrier()
        checkpoints.save(step, self.engine, {"step": step}, scores={}, wait=False)
        while checkpoints.in_flight and self.world.sum([int(not checkpoints.is_written)]) != [0]:
            self.update()
            updates += 1
        outcome = checkpoints.commit()
        assert outcome is not None
        assert outcome.succeeded, outcome
        return {"stopped_seconds": outcome.stopped_seconds, "seconds": outcome.seconds, "updates": updates}


def _rank(stage: int, rounds: int, work: Path) -> None:
    """Run one rank: in each round, one update and one save of the same weights each way. The first round is untimed."""
    from trainer.ranks.process import tune_process

    tune_process()
    rank = _Rank(stage, work)
    update_seconds = [rank.update() for _ in range(5)][1:]
    measured, hashes = [], {}
    for step in range(rounds + 1):
        rank.update()
        # blocking first, because training continues during the other and both must save the same weights
        measured.append({way: rank.save(way, step) for way in reversed(WAYS)})
        if rank.world.is_main:
            hashes = {way: _hash(work / way / step_folder(step)) for way in WAYS}
            assert len(set(hashes.values())) == 1, hashes
    if rank.world.is_main:
        figures = {
            "ranks": rank.world.size,
            "stage": stage,
            "num_parameters": sum(rank.engine.parameter_sizes().values()),
            "checkpoint_bytes": sum(p.stat().st_size for p in (work / WAYS[0] / step_folder(rounds)).iterdir()),
            "update_seconds": update_seconds,
            "first": measured[0],
            "rounds": measured[1:],
            "hashes": hashes,
            "same_bytes": len(set(hashes.values())) == 1,
        }
        (work / "figures.json").write_text(json.dumps(figures))
    rank.world.barrier()
    rank.world.close()


def _hash(folder: Path) -> str:
    """SHA-256 of a checkpoint's files and their names."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


if __name__ == "__main__":
    if sys.argv[1:2] == [RANKS]:
        _rank(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
        sys.exit(0)
    run_main(main)
