"""Sentences a second with the same weights, greedy and beam: zeromt, Transformers, CTranslate2.

    python -m benchmarks.decoding.decode RUN --source test.en --reference test.de

A program that is not installed is skipped with a message.
"""

import importlib.util
import operator
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.common.child import call
from benchmarks.common.measure import machine, median, parser, print_machine, print_table, run_main
from benchmarks.common.results import Row, figure, record
from benchmarks.common.text import read_lines
from benchmarks.decoding import decoders
from benchmarks.decoding.decoders import export
from configs.components import ScoredText, make
from data_pipeline.tokenizer import EOS_ID
from trainer.inference.loading import TrainedModel
from trainer.metrics.scoring import Scorer
from zeromt.formats.check import load_exact

OURS = "zeromt"
IN_BF16 = "zeromt bf16"
LENGTH_PENALTY = 0.8
"""Exponent of the length penalty in programs that divide by length^exponent; see `decoders.Search`."""
Program = Callable[[], dict[str, Any]]
"""Measures once in a new process; returns `results`, one for each search, with seconds, ids and texts."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0."""
    options = parser(__doc__)
    options.add_argument("run", metavar="RUN", help="a run's folder or one checkpoint")
    options.add_argument("--source", type=Path, required=True)
    options.add_argument("--reference", type=Path, required=True)
    options.add_argument("--sentences", type=int, help="translate only the first sentences (default: all)")
    options.add_argument("--beams", type=int, nargs="+", default=[1, 5])
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--warm-up", type=int, default=100, metavar="N", help="sentences translated before timing")
    options.add_argument("--batch", type=int, default=4096, help="padded source tokens of a batch times the beam")
    options.add_argument("--only", nargs="+", metavar="PROGRAM")
    args = options.parse_args(arguments)
    lines, references = (read_lines(path, args.sentences) for path in (args.source, args.reference))
    where = machine()
    print_machine(where)
    trained = load_exact(Path(args.run))
    with tempfile.TemporaryDirectory(dir=args.work) as work:
        programs = prepare(args, trained, lines, Path(work))
        rounds = [measure(programs, number, args.beams) for number in range(1, args.rounds + 1)]
    text = ScoredText(target_language=trained.config.prepare.target_language)
    scorer = Scorer([make("metric", "bleu")], text)
    packages = {name.partition(" ")[0] for name in rounds[0]} - {OURS}
    installed = {package: version(package) for package in packages}
    rows: list[Row] = []
    for i, beam in enumerate(args.beams):
        by_round = [{name: results["results"][i] for name, results in measured.items()} for measured in rounds]
        rows += rows_of(scorer, references, f"beam {beam}" if beam > 1 else "greedy", by_round)
    print_table(f"{len(lines)} sentences, {args.threads} threads, {args.rounds} rounds", rows)
    settings = {"sentences": len(lines), "rounds": args.rounds, "threads": args.threads}
    record(args, "decoding", rows, where, versions=installed, settings=settings)
    return 0


def measure(programs: dict[str, Program], number: int, beams: Sequence[int]) -> dict[str, dict[str, Any]]:
    """One round: run every program once, and print a line after each."""
    results = {}
    for name, program in programs.items():
        results[name] = program()
        times = zip(beams, results[name]["results"], strict=True)
        seconds = ", ".join(f"beam {beam} {result['seconds']:.2f} s" for beam, result in times)
        print(f"round {number}: {name}: {seconds}", flush=True)
    return results


def prepare(args: Any, trained: TrainedModel, lines: list[str], work: Path) -> dict[str, Program]:
    """The available programs, each with the model in its own format."""
    run = str(Path(args.run).resolve())
    sources = [[*ids, EOS_ID] for ids in trained.tokenizer.encode_source(lines)]
    longest = min(trained.model.max_positions - 1, 2 * max(map(len, sources)) + 20)
    searches = [
        asdict(decoders.Search(beam=beam, length_penalty=LENGTH_PENALTY, longest=longest, batch=args.batch))
        for beam in args.beams
    ]
    common = {"threads": args.threads, "lines": lines, "searches": searches, "warm_up": args.warm_up}

    def child(kind: str, folder: Path | str, **more: Any) -> Program:
        return lambda: call(decoders.measure, kind=kind, folder=str(folder), **common, **more)

    programs: dict[str, Program] = {}
    everything = [OURS, IN_BF16, "transformers", "transformers bf16", "ctranslate2", "ctranslate2 int8"]
    for name in args.only or everything:
        package, _, variant = name.partition(" ")
        folder = work / name.replace(" ", "-")
        dtype = {"bf16": "bfloat16"}.get(variant, "float32")
        if package == OURS:
            programs[name] = child(OURS, run, dtype=dtype)
        elif importlib.util.find_spec(package) is None:
            print(f"{name}: not installed, skipped")
        elif package == "transformers":
            export(run, "huggingface", folder)
            programs[name] = child(package, folder, dtype=dtype)
        else:
            export(run, package, folder, *(["--quantization", variant] if variant else []))
            programs[name] = child(package, folder)
    return programs


def rows_of(scorer: Scorer, references: list[str], search: str, rounds: list[dict[str, Any]]) -> list[Row]:
    """The table of one search: medians of the rounds, and ratios that are computed within each round."""
    rows: list[Row] = []
    for name, first in rounds[0].items():
        row: Row = {"search": search, "program": name}
        row["sentences_per_second"] = median(len(references) / r[name]["seconds"] for r in rounds)
        row["cpu_seconds"] = median(r[name]["cpu_seconds"] for r in rounds)
        for ours in (OURS, IN_BF16):
            if ours in rounds[0]:
                row[f"{ours} over this"] = figure(r[name]["seconds"] / r[ours]["seconds"] for r in rounds)
        row["bleu"] = scorer.score(first["texts"], first["texts"], [references])["bleu"].value
        row["pieces"] = sum(map(len, first["ids"]))
        row["same_as_zeromt"] = sum(map(operator.eq, first["ids"], rounds[0].get(OURS, first)["ids"]))
        rows.append(row)
    return rows


if __name__ == "__main__":
    # this process must not use CPU time while others are measured
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    run_main(main)
