"""Sentences a second with the same weights, greedy and beam: zeromt, Transformers, CTranslate2, Eole.

    python -m benchmarks.decoding.decode RUN --source test.en --reference test.de

The targets apply to zeromt in the precision that `engine.precision: auto` selects on this CPU, as with `zeromt
translate --precision auto`; the other programs run in fp32. A program that is not installed is skipped with a message.
Eole needs its own Python environment: --eole-python PATH.
"""

import importlib.util
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common.child import ROOT, call, environment
from benchmarks.common.measure import machine, median, parser, print_machine, print_table, run_main, spread
from benchmarks.common.results import Row, figure, record
from benchmarks.common.text import read_lines
from benchmarks.decoding import decoders
from benchmarks.decoding.decoders import export
from configs import UserError
from configs.components import ScoredText, make
from data_pipeline.tokenizer import EOS_ID
from trainer.inference.loading import TrainedModel
from trainer.inference.translation.translator import cut_batches
from trainer.metrics.scoring import Scorer
from trainer.ranks.precision import resolve_precision
from zeromt.exporting.command import load_exact

OURS = "zeromt"
IN_BF16 = "zeromt bf16"
LENGTH_PENALTY = 0.8
"""Exponent of the length penalty in programs that divide by length^exponent; see `decoders.Search`."""
TARGETS = {"transformers": 2.5, "eole": 1.5, "ctranslate2": 0.75}
VANILLA: dict[str, Any] = {
    "residual.kind": "pre",
    "norm.kind": "layer",
    "final_norm": True,
    "attention.kind": "multi_head",
    "attention.scale": "head_width",
    "output_bias": False,
    "positions.kind": "sinusoidal",
    "positions.layout": "interleaved",
    "positions.base": 10_000.0,
    "positions.offset": 0,
    "tied_embeddings": "three-way",
}
"""Fields that the model section must have for Eole to represent the model, with scaled embeddings."""
FOREIGN = {"eole": {**VANILLA, "scale_embeddings": True}}
"""Required fields by program; `with_NAME.py` runs in the program's own environment."""

Program = Callable[[], dict[str, Any]]
"""Measures once in a new process; returns `results`, one for each search, with seconds, ids and perhaps texts."""


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
    for name in FOREIGN:
        options.add_argument(f"--{name}-python", metavar="PATH", help=f"Python of an environment with {name}")
    args = options.parse_args(arguments)
    lines, references = (read_lines(path, args.sentences) for path in (args.source, args.reference))
    figures: dict[str, Any] = {"machine": machine(), "sentences": len(lines), "threads": args.threads}
    print_machine(figures["machine"])
    trained = load_exact(Path(args.run))
    with tempfile.TemporaryDirectory(dir=args.work) as work:
        programs = prepare(args, trained, lines, Path(work))
        rounds = [measure(programs, number, args.beams) for number in range(1, args.rounds + 1)]
    text = ScoredText(target_language=trained.config.prepare.target_language)
    scorer = Scorer([make("metric", "bleu")], text)
    figures["programs"] = versions(rounds[0])
    print(", ".join(f"{name} {text}" for name, text in figures["programs"].items()))
    figures["searches"] = [
        report(args, trained, scorer, references, beam, [{n: r[n]["results"][i] for n in r} for r in rounds])
        for i, beam in enumerate(args.beams)
    ]
    settings = {"sentences": len(lines), "rounds": args.rounds, "threads": args.threads}
    settings["judged"] = figures["searches"][0]["judged"]
    rows = [row for found in figures["searches"] for row in rows_of(found)]
    record(args, "decoding", rows, figures, versions=figures["programs"], settings=settings)
    return 0


def rows_of(found: dict[str, Any]) -> list[Row]:
    """The rows of the result file for one search."""
    rows: list[Row] = []
    for name, program in found["programs"].items():
        row: Row = {"search": f"beam {found['beam']}" if found["beam"] > 1 else "greedy"}
        row["program"] = "zeromt fp32" if name == OURS else name
        row["sentences_per_second"] = median(program["sentences_per_second"])
        for ours, key in ((OURS, "zeromt_fp32_over_this"), (IN_BF16, "zeromt_bf16_over_this")):
            if ours in program["zeromt_over_this"] and name != ours:
                row[key] = figure(program["zeromt_over_this"][ours])
        row |= {"target": program["target"]} if program["target"] else {}
        rows.append(row | {"bleu": program["bleu"]})
    return rows


def measure(programs: dict[str, Program], number: int, beams: Sequence[int]) -> dict[str, dict[str, Any]]:
    """One round: run every program once, and print a line after each."""
    found = {}
    for name, program in programs.items():
        found[name] = program()
        times = zip(beams, found[name]["results"], strict=True)
        seconds = ", ".join(f"beam {beam} {result['seconds']:.2f} s" for beam, result in times)
        print(f"round {number}: {name}: {seconds}", flush=True)
    return found


def prepare(args: Any, trained: TrainedModel, lines: list[str], work: Path) -> dict[str, Program]:
    """The available programs, each with the model in its own format."""
    run = str(Path(args.run).resolve())
    sources = [[*ids, EOS_ID] for ids in trained.tokenizer.encode_source(lines)]
    longest = min(trained.model.max_positions - 1, 2 * max(map(len, sources)) + 20)
    searches = [
        asdict(
            decoders.Search(beam=beam, length_penalty=LENGTH_PENALTY, longest=longest, is_same=False, batch=args.batch)
        )
        for beam in args.beams
    ]
    common = {"threads": args.threads, "lines": lines, "searches": searches, "warm_up": args.warm_up}

    def child(kind: str, folder: Path | str, **more: Any) -> Program:
        return lambda: call(decoders.measure, kind=kind, folder=str(folder), **common, **more)

    programs: dict[str, Program] = {}
    everything = [OURS, IN_BF16, "transformers", "transformers bf16", "ctranslate2", "ctranslate2 int8", *FOREIGN]
    for name in args.only or everything:
        package, _, variant = name.partition(" ")
        folder = work / name.replace(" ", "-")
        dtype = {"bf16": "bfloat16"}.get(variant, "float32")
        if package == OURS:
            programs[name] = child(OURS, run, dtype=dtype)
        elif package in FOREIGN:
            programs |= foreign(package, args, trained, sources, longest, work)
        elif importlib.util.find_spec(package) is None:
            print(f"{name}: not installed, skipped")
        elif package == "transformers":
            export(run, "huggingface", folder)
            programs[name] = child(package, folder, dtype=dtype)
        else:
            export(run, package, folder, *(["--quantization", variant] if variant else []))
            programs[name] = child(package, folder)
    return programs


def foreign_job(args: Any, trained: TrainedModel, sources: list[list[int]], longest: int, work: Path) -> dict[str, Any]:
    """The input of `with_NAME.py` as plain JSON. Our weights are saved to a file under our names.

    In each search, `length_penalty` is GNMT's alpha, `longest` is the maximum length with EOS, `batches` are lists of
    source numbers, and `batch` is the maximum number of padded source tokens of a batch.
    """
    section = asdict(trained.config.model)
    np.savez(work / "weights.npz", **{n: t.detach().numpy() for n, t in trained.model.state_dict().items()})
    names = ("d_model", "encoder_layers", "decoder_layers", "scale_embeddings")
    return {
        "threads": args.threads,
        "weights": str(work / "weights.npz"),
        "sizes": {
            **{name: section[name] for name in names},
            "num_heads": section["attention"]["num_heads"],
            "activation": section["feed_forward"]["kind"],
            "d_ff": section["feed_forward"]["d_ff"],
            "vocab": trained.tokenizer.source_vocab_size,
            "norm_eps": section["norm"]["eps"],
        },
        "sources": sources,
        "warm_up": args.warm_up,
        "searches": [
            {
                "beam": beam,
                "length_penalty": LENGTH_PENALTY / 0.8,
                "longest": longest,
                "batch": args.batch // beam,
                "batches": cut_batches({i: len(s) for i, s in enumerate(sources)}, args.batch // beam),
            }
            for beam in args.beams
        ],
    }


def _fields(tree: dict[str, Any], where: str = "") -> Iterator[tuple[str, Any]]:
    """All fields of a section and its components, as (dotted path, value)."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _fields(value, f"{where}{key}.")
        else:
            yield f"{where}{key}", value


def foreign(
    name: str, args: Any, trained: TrainedModel, sources: list[list[int]], longest: int, work: Path
) -> dict[str, Program]:
    """A program in its own environment, if its Python is given and its model can represent ours.

    Raises:
        UserError: raised by the returned program if it fails; the message has the end of its stderr.
    """
    python = getattr(args, f"{name}_python")
    if python is None:
        print(f"{name}: --{name}-python not given, skipped")
        return {}
    model = trained.config.model
    fields = {**dict(_fields(asdict(model))), "final_norm": model.has_final_norm}
    others = [field for field, value in FOREIGN[name].items() if fields.get(field) != value]
    if others:
        print(f"{name}: does not support {', '.join(f'{f}={fields.get(f)}' for f in others)}, skipped")
        return {}
    job = foreign_job(args, trained, sources, longest, work)

    def program() -> dict[str, Any]:
        rest = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
        command = [python, str(ROOT / "benchmarks" / "peers" / f"with_{name}.py")]
        ended = subprocess.run(command, env=rest, input=json.dumps(job), capture_output=True, text=True, check=False)
        if ended.returncode:
            raise UserError(f"{name}: exit code {ended.returncode}\n{ended.stderr[-2000:]}")
        found: dict[str, Any] = json.loads(ended.stdout)
        return found

    return {name: program}


def versions(measured: dict[str, Any]) -> dict[str, str]:
    """Versions of the other measured programs; zeromt's is the commit."""
    packages = {name.partition(" ")[0]: result for name, result in measured.items()}
    packages.pop(OURS, None)
    return {package: result.get("version") or version(package) for package, result in packages.items()}


def report(
    args: Any, trained: TrainedModel, scorer: Scorer, references: list[str], beam: int, rounds: list[dict[str, Any]]
) -> dict[str, Any]:
    """Print the table of one search; returns its figures as JSON."""
    judged = IN_BF16 if resolve_precision("auto", torch.device("cpu")) == "bf16" else OURS
    figures: dict[str, Any] = {"beam": beam, "judged": judged, "programs": {}}
    rows = []
    for name, first in rounds[0].items():
        texts = first.get("texts") or trained.tokenizer.decode_target(first["ids"])
        rates = [len(references) / r[name]["seconds"] for r in rounds]
        ratios = {
            ours: [r[name]["seconds"] / r[ours]["seconds"] for r in rounds]
            for ours in (OURS, IN_BF16)
            if ours in rounds[0]
        }
        verdict = ""
        if name in TARGETS and judged in ratios:
            verdict = f"{TARGETS[name]:.2f} {'holds' if median(ratios[judged]) >= TARGETS[name] else 'does NOT hold'}"
        same = sum(a == b for a, b in zip(first["ids"], rounds[0].get(OURS, first)["ids"], strict=True))
        figures["programs"][name] = {
            "sentences_per_second": rates,
            "cpu_seconds": [r[name]["cpu_seconds"] for r in rounds],
            "zeromt_over_this": ratios,
            "target": TARGETS.get(name),
            "bleu": scorer.score(texts, texts, [references])["bleu"].value,
            "pieces": sum(map(len, first["ids"])),
            "same_as_zeromt": same,
        }
        rows.append(
            {
                f"beam {beam}" if beam > 1 else "greedy": name,
                "sentences/s": f"{median(rates):.1f}",
                "CPU s": f"{median(r[name]['cpu_seconds'] for r in rounds):.2f}",
                **{f"speed-up of {ours}": spread(found) for ours, found in ratios.items()},
                f"target of {judged}": verdict,
                "BLEU": f"{figures['programs'][name]['bleu']:.2f}",
                "pieces": str(figures["programs"][name]["pieces"]),
                "same pieces": str(same),
            }
        )
    print_table(f"{len(references)} sentences, {args.threads} threads, {args.rounds} rounds", rows)
    return figures


if __name__ == "__main__":
    # this process must not use CPU time while others are measured
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    run_main(main)
