"""Seconds of training until a given corpus BLEU on a test set, for zeromt and the plain loop.

    python -m benchmarks.training.time_to_bleu --source train.en --target train.de \\
        --test-source test.en --test-target test.de

Both train the same model on the same pairs with the same settings, and save their weights every --every updates. They
run at the same time with half of the threads each, so that disturbances of the machine affect both. Both save a moving
average of the weights; --ema-decay 0 saves the weights themselves, whose BLEU can drop by up to three points from one
save to the next. Time starts with the program and includes its start-up, but neither saving nor data preparation.
Afterwards zeromt decodes each set of weights greedily in fp32, those of the plain loop too. BLEU is interpolated
linearly between saves.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.child import ROOT, environment
from benchmarks.common.measure import machine, parser, print_machine, print_table, run_main
from benchmarks.common.results import Row, record
from benchmarks.common.text import read_lines
from benchmarks.startup.first_update import DTYPES, first_match, stamped
from benchmarks.training import plain_loop, trainers
from benchmarks.training.plain_weights import load_plain
from benchmarks.training.train import SIZES
from benchmarks.training.trainers import Work
from configs import SearchSection, model_section
from configs.components import ScoredText, make
from data_pipeline.tokenizer import Tokenizer
from model import Transformer
from trainer.checkpoint.model_files import build_model, load_weights
from trainer.inference.loading import find_checkpoint
from trainer.inference.translation.translator import Translator
from trainer.metrics.scoring import Scorer
from trainer.ranks.process import tune_process
from trainer.runs.layout import checkpoint_folder

OURS, REFERENCE = "zeromt", "plain loop"


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Saved weights of one update."""

    update: int
    seconds: float
    """Training time until then, from the start of the program."""
    path: Path


@dataclass(frozen=True, kw_only=True)
class Point:
    """A point of the learning curve."""

    update: int
    seconds: float
    bleu: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0."""
    args = options().parse_args(arguments)
    figures: dict[str, Any] = {"machine": machine(), "settings": vars(args)}
    print_machine(figures["machine"])
    torch.set_num_threads(args.threads)
    tune_process()
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        work = Work(
            folder=Path(folder),
            source=args.source.resolve(),
            target=args.target.resolve(),
            threads=args.threads,
            updates=args.updates,
            warm_up=0,
            budget=args.budget,
            sizes=SIZES | dict.fromkeys(("dropout", "activation_dropout"), args.dropout),
            peak=args.peak,
            warmup_updates=args.warmup,
        )
        work.sizes.update(trainers.prepare(work, args.vocab))
        test = TestSet(work, args.test_source, args.test_target, args.sentences)
        curves = measure(work, test, args)
    print_curves(curves, args.seed)
    figures["curves"] = {name: [asdict(point) for point in curve] for name, curve in curves.items()}
    rows = rows_of(curves, args.goal, args.seed)
    print_goal(rows[-1])
    names = ("precision", "dropout", "ema_decay", "updates", "budget", "threads")
    settings = {name: getattr(args, name) for name in names} | {"test_set": args.test_source.name}
    record(args, "time_to_bleu", rows, figures, settings=settings)
    return 0


def rows_of(curves: Mapping[str, Sequence["Point"]], goal: float, seed: int) -> list[Row]:
    """The rows of the result file: the curves, and last the seconds to the goal of each program that reached it."""
    rows: list[Row] = []
    for name, curve in curves.items():
        fields = {"updates": "update", "seconds": "seconds", "bleu": "bleu"}
        lists = {key: [round(getattr(point, field), 2) for point in curve] for key, field in fields.items()}
        rows.append({"part": "curve", "program": name, "seed": seed, **lists})
    ours, theirs = (reached(curves[name], goal) for name in (OURS, REFERENCE))
    row = {"zeromt_seconds": ours, "plain_loop_seconds": theirs, "ratio": ours / theirs if ours and theirs else None}
    return [*rows, {"part": "goal", "seed": seed, "goal": goal} | {k: v for k, v in row.items() if v}]


def options() -> Any:
    """The command line."""
    found = parser(__doc__)
    for name in ("--source", "--target", "--test-source", "--test-target"):
        found.add_argument(name, type=Path, required=True)
    found.add_argument("--sentences", type=int, help="use only the first sentences of the test set (default: all)")
    found.add_argument("--goal", type=float, default=31.0, metavar="BLEU")
    found.add_argument(
        "--updates", type=int, default=1500, help="updates of both programs; the learning rate decays to 0"
    )
    found.add_argument("--every", type=int, default=100, metavar="N", help="updates between saves of the weights")
    found.add_argument("--precision", choices=DTYPES, default="fp32")
    found.add_argument("--vocab", type=int, default=8000)
    found.add_argument("--budget", type=int, default=4096, help="padded tokens of an update, both sides together")
    found.add_argument("--peak", type=float, default=1.5e-3, help="highest learning rate")
    found.add_argument("--warmup", type=int, default=300, help="updates until the highest learning rate")
    found.add_argument("--dropout", type=float, default=0.2)
    found.add_argument("--ema-decay", type=float, default=0.99, help="decay of the moving average; 0 turns it off")
    found.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    found.add_argument("--seed", type=int, default=1)
    return found


def measure(work: Work, test: "TestSet", args: Any) -> dict[str, list[Point]]:
    """Train with both programs at the same time; returns the learning curves."""
    trains: dict[str, Callable[..., list[Kept]]] = {OURS: train_ours, REFERENCE: train_plain}
    loads: dict[str, Callable[..., None]] = {OURS: load_ours, REFERENCE: load_plain}
    work = replace(work, threads=max(1, work.threads // len(trains)))
    folders = {name: work.folder / name.replace(" ", "-") for name in trains}
    with ThreadPoolExecutor(len(trains)) as pool:
        kept = {name: pool.submit(train, work, folders[name], args) for name, train in trains.items()}
    curves: dict[str, list[Point]] = {}
    for name, load in loads.items():
        curves[name] = []
        for weights in kept[name].result():
            load(weights.path, test.model, work)
            point = Point(update=weights.update, seconds=weights.seconds, bleu=test.bleu())
            curves[name].append(point)
            at = f"update {point.update}, {point.seconds:.1f} s"
            print(f"{name}: {at}: BLEU {point.bleu:.2f}", flush=True)
        shutil.rmtree(folders[name])
    return curves


def train_ours(work: Work, folder: Path, args: Any) -> list[Kept]:
    """Train with `zeromt train` in one process, with blocking saves."""
    side, every = trainers.side_of(work), args.every
    settings = {
        "name": folder.name,
        "output": folder.parent,
        "seed": args.seed,
        "stream.micro_batches": 1,
        "stream.source_tokens": side,
        "stream.target_tokens": side,
        "model": json.dumps(trainers.our_model(work.sizes)),
        "optimizer.lr": work.peak,
        "optimizer.weight_decay": plain_loop.WEIGHT_DECAY,
        "schedule.kind": "linear",
        "schedule.warmup_updates": work.warmup_updates,
        "engine.precision": args.precision,
        "engine.zero_stage": 0,
        "training.max_updates": work.updates,
        "training.ema_decay": args.ema_decay,
        "training.log_every": every,
        "evaluation.every_updates": 0,
        "checkpoint.every_updates": every,
        "checkpoint.keep_last": work.updates // every + 2,
        "checkpoint.asynchronous": "false",
    }
    command = [sys.executable, "-m", "zeromt", "train", str(work.folder / "run.yaml")]
    began = time.time()
    command += [f"{key}={value}" for key, value in settings.items()]
    lines = stamped(command, environment() | {"OMP_NUM_THREADS": str(work.threads)}, ROOT)
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    clock = {line["step"]: line["total_seconds"] for line in metrics if line["kind"] == "train"}
    saves = {line["step"]: line["stopped_seconds"] for line in metrics if line.get("event") == "checkpoint"}
    start_up = first_match(lines, rf"^step {every} ") - began - clock[every]
    return [
        Kept(
            update=update,
            seconds=start_up + seconds - sum(stood for step, stood in saves.items() if step < update),
            path=checkpoint_folder(folder, update),
        )
        for update, seconds in clock.items()
        if update % every == 0
    ]


def train_plain(work: Work, folder: Path, args: Any) -> list[Kept]:
    """Train with the plain loop."""
    folder.mkdir()
    kept = {"ema_decay": args.ema_decay, "keep_every": args.every, "folder": str(folder)}
    found = trainers.plain(work, dtype=DTYPES[args.precision], seed=args.seed, **kept)
    began = found["first_update_at"] - found["first_update_seconds"]
    return [Kept(update=k["update"], seconds=k["at"] - began, path=Path(k["file"])) for k in found["kept"]]


class TestSet:
    """The test set, and the model that decodes it with the weights of both programs."""

    def __init__(self, work: Work, source: Path, target: Path, count: int | None) -> None:
        self._tokenizer = Tokenizer.load(work.dataset)
        self._lines, self._references = read_lines(source, count), read_lines(target, count)
        self._scorer = Scorer([make("metric", "bleu")], ScoredText(target_language="de"))
        section = model_section(**trainers.our_model(work.sizes))
        self.model: Transformer = build_model(section, self._tokenizer, seed=1).eval()

    def bleu(self) -> float:
        """Corpus BLEU of the model's greedy translations, from 0 to 100."""
        translator = Translator(self.model, self._tokenizer, SearchSection(), torch.device("cpu"))
        texts = [best[0].text for best in translator.translate(self._lines)]
        return self._scorer.score(texts, texts, [self._references])["bleu"].value


def load_ours(path: Path, model: Transformer, _: Work) -> None:
    """Load the weights of a zeromt checkpoint into the model."""
    load_weights(find_checkpoint(path), model, raw=False)


def reached(curve: Sequence[Point], goal: float) -> float | None:
    """Seconds at which a curve first reaches the goal, interpolated linearly; None if it never does."""
    for before, point in zip([None, *curve], curve, strict=False):
        if point.bleu >= goal:
            if before is None:
                return point.seconds
            fraction = (goal - before.bleu) / (point.bleu - before.bleu)
            return before.seconds + fraction * (point.seconds - before.seconds)
    return None


def print_curves(curves: Mapping[str, Sequence[Point]], seed: int) -> None:
    """Print the curves of all programs side by side, by update."""
    rows = []
    for points in zip(*curves.values(), strict=True):
        row = {"update": f"{points[0].update:,}"}
        for name, point in zip(curves, points, strict=True):
            row |= {f"{name}: s": f"{point.seconds:.1f}", f"{name}: BLEU": f"{point.bleu:.2f}"}
        rows.append(row)
    print_table(f"seconds of training and greedy BLEU on the test set, seed {seed}", rows)


def print_goal(row: Row) -> None:
    """Print the seconds to the goal, from the last of `rows_of`."""
    ours, theirs = row.get("zeromt_seconds"), row.get("plain_loop_seconds")
    holds = ours is not None and (theirs is None or ours <= theirs)
    times = [f"{t:,.1f} s" if t else "never" for t in (ours, theirs)]
    print(f"\nBLEU {row['goal']:g}: {OURS} {times[0]}, {REFERENCE} {times[1]}")
    print(f"target, at most the {REFERENCE}'s: {'holds' if holds else 'does NOT hold'}")


if __name__ == "__main__":
    run_main(main)
