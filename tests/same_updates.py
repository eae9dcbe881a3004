"""Random tiny configurations, trained by this tree and by another: pairs, losses and norms must be equal to the bit.

python -m tests.same_updates TREE [--cases 24] [--seed 1]    exit code 1 if one differs
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[1]
FIGURES = ("step", "loss", "nll", "grad_norm", "lr", "pairs_digest", "target_tokens")
CHOICES = [
    ("engine.zero_stage=0", "engine.zero_stage=1", "engine.zero_stage=2", "engine.zero_stage=3"),
    ("engine.precision=fp32", "engine.precision=fp32", "engine.precision=bf16"),
    ("engine.kernels=auto", "engine.kernels=plain"),
    ("model.norm=layer", "model.norm=rms"),
    ("model.positions=sinusoidal", "model.positions=learned", "model.positions=rotary"),
    ("model.feed_forward.kind=relu", "model.feed_forward.kind=swiglu", "model.feed_forward.kind=gelu"),
    ("model.dropout=0", "model.dropout=0.1", "model.dropout=0.3"),
    ("schedule.kind=inverse_sqrt", "schedule.kind=linear", "schedule.kind=wsd"),
    ("training.ema_decay=0", "training.ema_decay=0.9"),
    ("stream.micro_batches=1", "stream.micro_batches=2", "stream.micro_batches=3", "stream.micro_batches=5"),
    ("stream.workers=0", "stream.workers=0", "stream.workers=1"),
    ("stream.window_pairs=64", "stream.window_pairs=200", "stream.window_pairs=262144"),
    ("stream.datasets=[{path: dataset}]", "stream={datasets: [{path: dataset}, {path: dataset_b}], temperature: 3}"),
    ("stream.augment=[]", "stream.augment=[]", "stream.augment=[{kind: typos, probability: 0.3}, {kind: noise}]",
     "stream.augment=[{kind: bpe_dropout}]", "stream.augment=[{kind: merge, probability: 0.2}, {kind: upper_case}]"),
    ("training.freeze=[]", "training.freeze=[]", "training.freeze=[encoder]"),
]  # fmt: skip


def train(tree: Path, folder: Path, settings: list[str], ranks: int) -> list[list[object]]:
    """What metrics.jsonl says of every update of a run by the code of `tree`, and of its evaluations."""
    name = f"run{len(list(folder.glob('runs/*')))}"
    zeromt(tree, folder, "launch", "local", "small.yaml", "--nproc", str(ranks), f"name={name}", *settings)
    lines = [json.loads(line) for line in (folder / "runs" / name / "metrics.jsonl").read_text().splitlines()]
    return [[repr(line.get(figure)) for figure in FIGURES] for line in lines if "loss" in line]


def zeromt(tree: Path, folder: Path, *words: str) -> None:
    """Run a command by the code of `tree` in `folder`, and show its last lines if it fails."""
    variables = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(folder / "state")}
    command = [sys.executable, "-m", "zeromt", *words]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"{tree}: {' '.join(words)}: exit code {done.returncode}\n{done.stderr[-2000:]}")


def main() -> None:
    """Train each configuration by both trees, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--cases", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    different = 0
    with tempfile.TemporaryDirectory() as work:
        trees = {tree: Path(work) / f"tree{number}" for number, tree in enumerate((options.tree.resolve(), HERE))}
        for tree, folder in trees.items():
            shutil.copytree(HERE / "tests/small", folder)
            spelled = "prepare.tokenizer={vocab_size: 500, byte_fallback: true}"
            zeromt(tree, folder, "prepare", "small.yaml", spelled)
            second = ("prepare.output=dataset_b", "prepare.tokenizer.path=dataset")
            zeromt(tree, folder, "prepare", "small.yaml", *second, "prepare.train={source: [b.en], target: [b.fr]}")
        for _ in range(options.cases):
            settings = [draw.choice(values) for values in CHOICES]
            settings += [f"training.max_updates={draw.randint(8, 20)}", f"seed={draw.randint(1, 999)}"]
            if "engine.zero_stage=0" in settings:
                settings.append(f"optimizer.kind={draw.choice(('adamw', 'muon', 'adafactor'))}")
            ranks = 1 if "stream.micro_batches=1" in settings else draw.choice((1, 2))
            runs = [train(tree, folder, settings, ranks) for tree, folder in trees.items()]
            different += runs[0] != runs[1] or len(runs[0]) < 8
            print("equal" if runs[0] == runs[1] else "DIFFERENT", len(runs[0]), f"{ranks} ranks", *settings, flush=True)
    raise SystemExit(1 if different else 0)


if __name__ == "__main__":
    main()
