"""Scaling of training with width, depth, vocabulary, batch, ranks and corpus, each varied alone around a base.

    python -m benchmarks.training.growth

Each row is a run of `zeromt train`, or of `zeromt launch local` on several ranks, in a new process. The tables show
where time is proportional to the FLOPs of `zeromt plan`, and where it is not. Nothing may grow with the corpus: neither
the seconds to the first update of a new or a resumed run (tolerance: 20 % or one second, whichever is more) nor the
time of an update (tolerance: 20 % of tokens a second). Exit code 1 if something does. The text is synthetic unless
--corpus is given; it is always synthetic where the vocabulary varies.
"""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.common.measure import machine, median, parser, print_machine, print_table, run_main, spread
from benchmarks.common.results import Row, figure, record
from benchmarks.common.text import Text, generate, repeat
from benchmarks.training import trainers
from benchmarks.training.trainers import Work
from configs import UserError, model_section
from configs.components import make
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import DatasetIndex
from model.costs.flops import BatchShape, executed_flops
from model.parameters import Vocabularies, parameters

MIB = 2**20
HEAD_WIDTH = 64
ALLOWED_FRACTION, ALLOWED_SECONDS = 0.2, 1.0
"""Tolerance of start-up time with a larger corpus, the larger of both. The fraction also applies to tokens a second."""

VARIED = {"depth": "layers", "vocab": "vocabulary", "ranks": "ranks, one thread each"}
VARIED |= {part: part for part in ("width", "batch")}
"""Names of the parts in result files."""

Figures = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Point:
    """A point to measure; the defaults are the base."""

    width: int = 256
    depth: int = 3
    """Layers of the encoder, and of the decoder."""
    vocab: int = 8000
    batch: int = 2048
    """Padded tokens per side and rank."""
    ranks: int = 1
    corpus: int = 1
    """Number of repetitions of the corpus."""

    @property
    def sizes(self) -> dict[str, Any]:
        """Fields of the section `model`."""
        return {
            "d_model": self.width,
            "num_heads": self.width // HEAD_WIDTH,
            "d_ff": 4 * self.width,
            "encoder_layers": self.depth,
            "decoder_layers": self.depth,
            "dropout": 0.1,
        }


BASE = Point()
PARTS: dict[str, tuple[int, ...]] = {
    "width": (128, 256, 512),
    "depth": (1, 3, 6),
    "vocab": (4000, 8000, 16_000, 32_000),
    "batch": (1024, 2048, 4096, 8192),
    "ranks": (1, 2, 4),
    "corpus": (1, 10, 100),
}
TITLES = {
    "width": "Width, with heads of width 64 and d_ff = 4 x width",
    "depth": "Layers of encoder and decoder",
    "vocab": "Size of the joint vocabulary, synthetic text",
    "batch": "Padded tokens per side of a micro-batch",
    "ranks": "Ranks with one thread and one micro-batch each",
}


@dataclass(slots=True)
class Bench:
    """State that all parts share."""

    arguments: Any
    folder: Path
    synthetic: Text
    given: Text
    """The text of --corpus; the synthetic text by default."""
    prepared: dict[tuple[str, int, int], Work] = field(default_factory=dict)
    """Prepared data by text, vocabulary and repetitions."""

    def rounds(self, part: str) -> range:
        """Round numbers. The corpus part has three by default, because start-up times vary by seconds."""
        asked: int | None = self.arguments.rounds
        return range((3 if part == "corpus" else 1) if asked is None else asked)

    def train(self, part: str, point: Point, *, more: int = 0, run: str | None = None) -> Figures:
        """Train at a point. With `run`, resume that run for `more` updates."""
        text = self.synthetic if part == "vocab" else self.given
        work = replace(
            self._prepare(text, point.vocab, point.corpus),
            threads=point.ranks if part == "ranks" else self.arguments.threads,
            updates=self.arguments.updates + more,
            budget=2 * point.batch * point.ranks,
            sizes=point.sizes,
        )
        found = trainers.ours(work, precision=self.arguments.precision, ranks=point.ranks, run=run)
        return {**found, **_size(point, found, Dataset.load(work.dataset).index)}

    def _prepare(self, text: Text, vocab: int, times: int) -> Work:
        """Prepare the text repeated `times` times, once; all repetitions use the same tokenizer."""
        key = (text.name, vocab, times)
        if key in self.prepared:
            return self.prepared[key]
        folder = self.folder / "-".join(map(str, key))
        folder.mkdir()
        tokenizer: Figures = {"kind": "bpe", "vocabulary": "joint", "vocab_size": vocab}
        if times > 1:
            tokenizer = {"path": str(self._prepare(text, vocab, 1).dataset)}
            text = repeat(text, folder, times)
        work = Work(
            folder=folder,
            source=text.source.resolve(),
            target=text.target.resolve(),
            threads=self.arguments.threads,
            updates=self.arguments.updates,
            warm_up=self.arguments.warm_up,
            budget=2 * BASE.batch,
            sizes=BASE.sizes,
        )
        trainers.prepare_dataset(work, tokenizer)
        self.prepared[key] = work
        return work


def _size(point: Point, found: Figures, index: DatasetIndex) -> Figures:
    """Pairs of the corpus, parameters of the model, and FLOPs of an update of all ranks, padding included."""
    section = model_section(**point.sizes)
    tokenizer = index.tokenizer
    vocabularies = Vocabularies(source=tokenizer.source_vocab_size, target=tokenizer.target_vocab_size)
    pairs, source, target = (found["per_update"][key] for key in trainers.COUNTS)
    filled = 1 - found["padding"]
    shape = BatchShape(
        rows=max(1, round(pairs / point.ranks)),
        source=round(source / filled / pairs),
        target=round(target / filled / pairs),
    )
    flops = sum(executed_flops(section, make("loss", "cross_entropy"), vocabularies, shape).values())
    per_token = flops / (shape.source_tokens + shape.target_tokens)  # lengths were rounded
    return {
        "pairs": index.pairs,
        "parameters": sum(p.size for p in parameters(section, vocabularies)),
        "flops": per_token * (source + target) / filled,
    }


def measure_growth(bench: Bench, part: str) -> Figures:
    """Vary one quantity, with its values in turns; prints a table."""
    values = PARTS[part]
    if part == "ranks":
        values = tuple(v for v in values if v <= len(os.sched_getaffinity(0)))
    rounds: list[dict[int, Figures]] = []
    for number in bench.rounds(part):
        rounds.append({})
        for value in values:
            rounds[-1][value] = found = bench.train(part, replace(BASE, **{part: value}))
            found["flop_per_second"] = found["flops"] / found["seconds_per_update"]
            print(f"round {number + 1}: {part} {value}: {found['tokens_per_second']:,.0f} tokens/s", flush=True)
    base = getattr(BASE, part)
    ratios = {v: [r[v]["flop_per_second"] / r[base]["flop_per_second"] for r in rounds] for v in values}
    rows = [_row(part, value, [r[value] for r in rounds], ratios[value]) for value in values]
    print_table(f"{TITLES[part]}; the base is {base}", rows)
    return {"rounds": rounds, "flop_per_second_of_the_base": ratios}


def _row(part: str, value: int, found: Sequence[Figures], ratios: Sequence[float]) -> dict[str, str]:
    def of(key: str, form: str, scale: float = 1.0) -> str:
        return f"{median(f[key] for f in found) * scale:{form}}"

    return {
        part: f"{value} + {value}" if part == "depth" else f"{value:,}",
        "parameters": of("parameters", ",.0f"),
        "GFLOP/update": of("flops", ",.1f", 1e-9),
        "s/update": of("seconds_per_update", ".3f"),
        "target tokens/s": of("tokens_per_second", ",.0f"),
        "padding": of("padding", ".1%"),
        "peak MiB": of("peak_memory", ",.0f", 1 / MIB),
        "GFLOP/s": of("flop_per_second", ",.1f", 1e-9),
        "relative to the base": spread(ratios) if len(ratios) > 1 else f"{ratios[0]:.2f}",
    }


def measure_corpus(bench: Bench, part: str) -> Figures:
    """New and resumed runs by the size of the corpus; prints a table with verdicts."""
    rounds: list[dict[int, Figures]] = []
    for number in bench.rounds(part):
        rounds.append({})
        for times in PARTS[part]:
            point = replace(BASE, corpus=times)
            new = bench.train(part, point)
            resumed = bench.train(part, point, more=bench.arguments.warm_up + 1, run=new["run"])
            rounds[-1][times] = {"new": new, "resumed": resumed}
            starts = f"{new['first_update_seconds']:.1f} and {resumed['first_update_seconds']:.1f} s"
            print(f"round {number + 1}: corpus x {times}: first update after {starts}", flush=True)
    figures = {times: _medians([r[times] for r in rounds]) for times in PARTS[part]}
    base = figures[BASE.corpus]
    rows = []
    for found in figures.values():
        found["holds"] = is_flat(found, base)
        rows.append(
            {
                "pairs": f"{found['pairs']:,.0f}",
                "first update, new run": f"{found['new']:.2f} s",
                "resumed": f"{found['resumed']:.2f} s",
                "target tokens/s": f"{found['tokens_per_second']:,.0f}",
                "padding": f"{found['padding']:.1%}",
                "peak MiB": f"{found['peak_memory'] / MIB:,.0f}",
                "flat": "holds" if found["holds"] else "does NOT hold",
            }
        )
    print_table("The corpus, repeated: seconds from the command to the first update, and speed", rows)
    return {"rounds": rounds, "medians": figures}


def _medians(found: Sequence[Figures]) -> Figures:
    """Medians over the rounds at one size."""
    medians = {way: median(f[way]["first_update_seconds"] for f in found) for way in ("new", "resumed")}
    keys = ("pairs", "tokens_per_second", "padding", "peak_memory")
    return medians | {key: median(f["new"][key] for f in found) for key in keys}


def is_flat(found: Figures, base: Figures) -> bool:
    """Whether start-up times and speed are those of the base, within the tolerances."""
    starts = (
        found[way] - base[way] <= max(ALLOWED_FRACTION * base[way], ALLOWED_SECONDS) for way in ("new", "resumed")
    )
    return all(starts) and found["tokens_per_second"] >= (1 - ALLOWED_FRACTION) * base["tokens_per_second"]


def rows_of(part: str, figures: Figures) -> list[Row]:
    """The rows of a part in the result file."""
    if part == "corpus":
        names = {"new": "new_run_seconds", "resumed": "resumed_seconds"}
        kept = ("pairs", "tokens_per_second", "padding")
        return [
            {
                "part": "corpus",
                **{key: found[key] for key in kept},
                **{name: found[way] for way, name in names.items()},
                "peak_mib": found["peak_memory"] / MIB,
            }
            for found in figures["medians"].values()
        ]
    rows: list[Row] = []
    for value, ratios in figures["flop_per_second_of_the_base"].items():
        found = [r[value] for r in figures["rounds"]]
        row: Row = {"part": "growth", "varied": VARIED[part]}
        row |= {"value": f"{value} + {value}" if part == "depth" else value}
        for key in ("parameters", "seconds_per_update", "tokens_per_second", "padding"):
            row[key] = median(f[key] for f in found)
        row["peak_mib"] = median(f["peak_memory"] for f in found) / MIB
        row["gflop_per_update"] = median(f["flops"] for f in found) / 1e9
        row["gflop_per_second"] = median(f["flop_per_second"] for f in found) / 1e9
        rows.append(row | {"of_the_base": figure(ratios)})
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the selected parts; exit code 1 if something grows with the corpus."""
    options = parser(__doc__)
    options.add_argument("--corpus", type=Path, nargs=2, metavar=("SOURCE", "TARGET"), help="text, plain or .gz")
    options.add_argument("--pairs", type=int, default=10_000, help="pairs of synthetic text")
    options.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    options.add_argument("--updates", type=int, default=16)
    options.add_argument("--warm-up", type=int, default=4, metavar="N", help="untimed updates at the start")
    options.add_argument("--rounds", type=int, help="rounds of every part (default: 1, and 3 for the corpus)")
    options.add_argument("--threads", type=int, default=2, help="threads of the rank, where ranks are not varied")
    options.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    args = options.parse_args(arguments)
    if not 0 < args.warm_up < args.updates:
        raise UserError(f"--warm-up: {args.warm_up}; must be from 1 to {args.updates - 1}, below --updates")
    figures: Figures = {"machine": machine()}
    print_machine(figures["machine"])
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        synthetic = generate(Path(folder).resolve(), args.pairs)
        bench = Bench(
            args, Path(folder).resolve(), synthetic, Text("given", *args.corpus) if args.corpus else synthetic
        )
        for part in args.parts:
            measure = measure_corpus if part == "corpus" else measure_growth
            figures[part] = measure(bench, part)
    rows = [row for part in args.parts for row in rows_of(part, figures[part])]
    settings = {name: getattr(args, name) for name in ("threads", "precision", "updates")}
    record(args, "growth", rows, figures, settings=settings)
    is_flat = "corpus" not in figures or all(f["holds"] for f in figures["corpus"]["medians"].values())
    return 0 if is_flat else 1


if __name__ == "__main__":
    run_main(main)
