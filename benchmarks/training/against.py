"""Speed-up of this tree over another commit in target tokens a second, on this machine.

    python -m benchmarks.training.against COMMIT

Runs `zeromt train`, or with --ranks `zeromt launch local`, in pairs, one run of each tree, with the order reversed in
every other pair. Each run is timed for --seconds after its warm-up, on data prepared by its own tree. COMMIT is checked
out into a temporary git worktree and runs with the same Python and packages. Exit code 1 if the median ratio of the
pairs is below --least.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.common.child import ROOT, environment, git, worktree
from benchmarks.common.measure import machine, median, parser, print_machine, print_table, run_main
from benchmarks.common.results import record
from benchmarks.training.train import SIZES
from benchmarks.training.trainers import our_model
from configs import UserError

CORPUS = ROOT / "data" / "tatoeba-en-fr"
STOPPED = 75
"""Exit code of a run after a request to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A checkout, and the folder for its runs."""

    name: str
    root: Path
    work: Path
    threads: int
    ranks: int

    def start(self, *command: str) -> "subprocess.Popen[str]":
        """Start a command of zeromt; its output goes to `log`."""
        # no other tree on the path
        env = environment() | {"PYTHONPATH": str(self.root), "OMP_NUM_THREADS": str(self.threads)}
        words = [sys.executable, "-m", "zeromt", *command]
        with self.log.open("w") as log:
            return subprocess.Popen(words, cwd=self.root, env=env, stdout=log, stderr=log, text=True)

    @property
    def run(self) -> str:
        """The configuration."""
        return str(self.work / "run.yaml")

    @property
    def log(self) -> Path:
        """Output of the last command."""
        return self.work / "log"

    def failed(self, what: str, code: int) -> UserError:
        """The error for a command that ended with a wrong exit code."""
        return UserError(f"{self.name}: {what}: exit code {code}\n{self.log.read_text(errors='replace')[-2000:]}")

    def prepare(self, settings: dict[str, Any]) -> None:
        """Write the configuration and prepare the data.

        Raises:
            UserError: it failed, or packages are imported from another tree.
        """
        self.work.mkdir()
        data = settings["prepare"] | {"output": str(self.work / "prepared")}
        Path(self.run).write_text(yaml.safe_dump(settings | {"prepare": data, "output": str(self.work)}))
        process = self.start("prepare", self.run)
        if process.wait():
            raise self.failed("prepare", process.returncode)
        command = [sys.executable, "-c", "import trainer; print(trainer.__path__[0])"]
        env = environment() | {"PYTHONPATH": str(self.root)}
        place = subprocess.run(
            command, cwd=self.root, env=env, capture_output=True, text=True, check=True
        ).stdout.strip()
        if not Path(place).is_relative_to(self.root):
            raise UserError(f"{self.name}: trainer is imported from {place}, not from {self.root}")

    def train(self, number: int, *, warm_up: int, seconds: float) -> dict[str, float]:
        """Target tokens a second of one run, which is stopped after `seconds`.

        Raises:
            UserError: it failed.
        """
        metrics = self.work / f"run-{number}" / "metrics.jsonl"
        ranks = [] if self.ranks == 1 else ["--nproc", str(self.ranks)]
        command = ["launch", "local"] if ranks else ["train"]
        process = self.start(*command, self.run, f"name=run-{number}", *ranks)
        try:
            lines = self._lines(metrics, process, warm_up, seconds)
            process.send_signal(signal.SIGTERM)
            if process.wait() != STOPPED:
                raise self.failed("train", process.returncode)
        finally:
            process.kill()
            process.wait()
        timed = lines[warm_up:]
        taken = timed[-1]["total_seconds"] - lines[warm_up - 1]["total_seconds"]
        return {"tokens_per_second": sum(t["target_tokens"] for t in timed) / taken, "updates": len(timed)}

    def _lines(
        self, metrics: Path, process: "subprocess.Popen[str]", warm_up: int, seconds: float
    ) -> list[dict[str, Any]]:
        """The metrics of a run's updates, as soon as it has trained long enough."""
        while True:
            text = metrics.read_text(encoding="utf-8") if metrics.exists() else ""
            whole = text.rpartition("\n")[0].splitlines()
            lines = [line for line in map(json.loads, whole) if line["kind"] == "train"]
            if len(lines) > warm_up:
                clock = [line["total_seconds"] for line in lines]
                if clock[-1] - clock[warm_up - 1] >= seconds:
                    return lines
            if process.poll() is not None:
                raise self.failed("train", process.returncode)
            time.sleep(0.2)


def settings_of(args: Any) -> dict[str, Any]:
    """The configuration of both trees, except for their folders."""
    languages = {f"{side}_language": getattr(args, side).name.split(".")[-2] for side in ("source", "target")}
    text = {side: [str(getattr(args, side).resolve())] for side in ("source", "target")}
    side = args.budget // 2
    return {
        "prepare": {
            "root": "/",
            "train": text,
            "valid": text,
            "tokenizer": {"kind": "bpe", "vocabulary": "joint", "vocab_size": args.vocab},
            "max_pieces": 128,
            **languages,
        },
        "stream": {"micro_batches": args.ranks, "source_tokens": side, "target_tokens": side},
        "model": our_model(SIZES),
        "optimizer": {"lr": 1e-3},
        "schedule": {"warmup_updates": 300},
        "engine": {"zero_stage": 0, "precision": args.precision},
        "training": {"max_updates": 1_000_000, "log_every": 1, "tensorboard": False},
        "evaluation": {"every_updates": 0},
        "checkpoint": {"every_updates": 0},
    }


def options() -> Any:
    """The command line."""
    argument_parser = parser(__doc__)
    argument_parser.add_argument("commit", metavar="COMMIT", help="the commit to compare this tree with")
    argument_parser.add_argument("--pairs", type=int, default=5)
    argument_parser.add_argument("--seconds", type=float, default=60.0, help="timed seconds of each run")
    argument_parser.add_argument("--warm-up", type=int, default=20, metavar="N", help="untimed updates at the start")
    argument_parser.add_argument(
        "--least",
        type=float,
        default=0.95,
        metavar="RATIO",
        help="exit code 1 if the median ratio is below this (0.95)",
    )
    argument_parser.add_argument(
        "--source", type=Path, default=CORPUS / "train.en.gz", help="a corpus, as NAME.LANGUAGE.gz"
    )
    argument_parser.add_argument("--target", type=Path, default=CORPUS / "train.fr.gz")
    argument_parser.add_argument("--vocab", type=int, default=8000)
    argument_parser.add_argument(
        "--budget", type=int, default=4096, help="padded tokens of an update, both sides together"
    )
    argument_parser.add_argument("--precision", default="fp32")
    argument_parser.add_argument(
        "--ranks", type=int, default=1, help="of `zeromt launch local`, with --threads divided by them"
    )
    argument_parser.add_argument("--threads", type=int, default=2)
    return argument_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 if the median ratio is below --least."""
    args = options().parse_args(arguments)
    commit = git("rev-parse", "--short", "--verify", f"{args.commit}^{{commit}}")
    where = machine()
    print_machine(where)
    with (
        tempfile.TemporaryDirectory(dir=args.work, prefix="against-") as name,
        worktree(commit, Path(name).resolve() / "tree") as root,
    ):
        work = Path(name).resolve()
        both = {"threads": args.threads // args.ranks or 1, "ranks": args.ranks}
        trees = [Tree(name="this tree", root=ROOT, work=work / "this", **both)]
        trees.append(Tree(name=commit, root=root, work=work / "other", **both))
        for tree in trees:
            tree.prepare(settings_of(args))
        pairs = [pair(trees, number, args) for number in range(args.pairs)]
    middle = median(p["ratio"] for p in pairs)
    rows = [*({"pair": str(number), **p} for number, p in enumerate(pairs, 1)), {"pair": "median", "ratio": middle}]
    print_table(f"target tokens/s of this tree over {commit}, {len(pairs)} x {args.seconds:g} s", rows)
    holds = middle >= args.least
    print(f"median {middle:.3f}; target: at least {args.least:g}, {'met' if holds else 'NOT met'}")
    settings = {name: getattr(args, name) for name in ("seconds", "budget", "precision", "ranks", "threads")}
    record(args, "against", rows, where, settings={"against": commit, **settings})
    return 0 if holds else 1


def pair(trees: Sequence[Tree], number: int, args: Any) -> dict[str, Any]:
    """One run of each tree, in an order that alternates between pairs; returns both rates and their ratio."""
    rates: dict[str, float] = {}
    for tree in trees if number % 2 == 0 else list(reversed(trees)):
        result = tree.train(number, warm_up=args.warm_up, seconds=args.seconds)
        rates[tree.name] = result["tokens_per_second"]
    this, other = (rates[tree.name] for tree in trees)
    print(f"pair {number + 1}: {this / other:.3f} ({this:,.0f} and {other:,.0f} target tokens/s)", flush=True)
    return {"this_tree": this, "other": other, "ratio": this / other}


if __name__ == "__main__":
    run_main(main)
