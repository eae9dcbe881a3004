"""Benchmark of the data pipeline: preparation, size on disk, reading, padding, division among ranks, and memory.

All measurements use the same text and take turns, `--rounds` times. Figures are medians over rounds, with the lowest
and highest in brackets; ratios are computed within a round. benchmarks/README.md explains them.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import measure
from benchmarks.common.child import ROOT, call
from benchmarks.common.results import record
from benchmarks.common.text import Text, generate, head, repeat
from benchmarks.data import one_pair, padding, preparation, reading
from benchmarks.data.consumption import train
from benchmarks.data.rows import ROWS
from configs import StreamSection, UserError

CORPUS = "text"
BUNDLED = ROOT / "data" / "tatoeba-en-fr"
WORKERS = (1, 2)
TOKENS = 4096
"""Padded tokens of a micro-batch, per side."""
STREAM = {"source_tokens": TOKENS, "target_tokens": TOKENS}
WORLD_SIZES = (1, 3, 8)
LANES = 24
TIMES = (1, 5, 50)

READERS: Mapping[str, Mapping[str, int]] = {
    "zeromt, in the loop": {"prefetch_updates": 0},
    "zeromt, a thread ahead": {},
    "zeromt, 2 processes": {"workers": 2},
}
READING_SECONDS = 2.0
"""Minimum time for which a dataset is read."""

Figures = dict[str, Any]


@dataclass(slots=True)
class Bench:
    """State that all parts share."""

    arguments: argparse.Namespace
    work: Path
    text: Text
    prepared: dict[str, Figures] = field(default_factory=dict)
    """Datasets by name, each with its own tokenizer."""
    samples: dict[str, Figures] = field(default_factory=dict)

    def prepare(self, text: Text, name: str, **arguments: Any) -> Figures:
        """Prepare a text in a child process."""
        source, target = text.sides
        folder = self.work / name
        arguments = {"workers": max(WORKERS), "tokenizer": None, **arguments}
        return {"folder": folder, **call(preparation.prepare, source=source, target=target, output=folder, **arguments)}

    def prepare_texts(self) -> None:
        """Prepare the benchmark's text and the available real corpora: the bundled one and Multi30k."""
        held_out = head(self.text, self.work, 10)
        self.prepared[CORPUS] = self.prepare(self.text, CORPUS, held_out=held_out.sides)
        names = {"bundled": (BUNDLED, ("en", "fr")), "multi30k": (self.arguments.multi30k, ("en", "de"))}
        for name, (folder, languages) in names.items():
            files = [folder / f"train.{language}.gz" for language in languages]
            if all(file.is_file() for file in files):
                self.prepared[name] = self.prepare(Text(name, *files), name)
            else:
                print(f"{name} is skipped: {files[0]} does not exist")

    def one_pair(self, name: str) -> Figures:
        """A dataset's first pairs written with one pair per sample."""
        if name not in self.samples:
            folder = self.work / f"{name}.samples"
            folder.mkdir()
            pairs = self.arguments.webdataset_pairs
            written = call(one_pair.write, dataset=self.prepared[name]["folder"], folder=folder, pairs=pairs)
            self.samples[name] = {"folder": folder, **written}
        return self.samples[name]

    @property
    def dataset(self) -> Path:
        """The prepared benchmark text."""
        return Path(self.prepared[CORPUS]["folder"])


def measure_preparation(bench: Bench) -> Figures:
    """Pairs and tokens a second, compared with SentencePiece alone; as many processes as SentencePiece has threads."""
    source, target = bench.text.sides
    bare: dict[int, list[Figures]] = {workers: [] for workers in WORKERS}
    ours: dict[int, list[Figures]] = {workers: [] for workers in WORKERS}
    for number in range(bench.arguments.rounds):
        for workers in WORKERS:
            given: Figures = {"source": source, "target": target, "tokenizer": bench.dataset}
            bare[workers].append(call(preparation.bare_sentencepiece, threads=workers, **given))
            name = f"prepared-{number}-{workers}"
            ours[workers].append(bench.prepare(bench.text, name, workers=workers, tokenizer=bench.dataset))
            if ours[workers][-1]["shards"] != bench.prepared[CORPUS]["shards"]:
                raise UserError(f"preparation: {workers} workers wrote different shards than before")
    rows, fractions = [], {}
    for workers in WORKERS:
        fractions[workers] = [b["seconds"] / o["seconds"] for b, o in zip(bare[workers], ours[workers], strict=True)]
        rows.append(_speed(f"sentencepiece alone, {workers} threads", bare[workers], "of sentencepiece", ""))
        fraction = measure.spread(fractions[workers], ".0%")
        rows.append(_speed(f"zeromt prepare, {workers} workers", ours[workers], "of sentencepiece", fraction))
    whole = bench.prepared[CORPUS]
    rows.append(_speed(f"the same with tokenizer training, {max(WORKERS)} workers", [whole], "of sentencepiece", ""))
    measure.print_table("Preparation with a given tokenizer, the same text and shards each time", rows)
    return {"sentencepiece": bare, "prepare": ours, "with_training": whole, "of_sentencepiece": fractions}


def _speed(name: str, results: Sequence[Figures], column: str, cell: str) -> dict[str, str]:
    return {
        "": name,
        "pairs/s": f"{measure.median(r['pairs'] / r['seconds'] for r in results):,.0f}",
        "tokens/s": f"{measure.median(r['tokens'] / r['seconds'] for r in results):,.0f}",
        "cores": f"{measure.median(r['processor_seconds'] / r['seconds'] for r in results):.2f}",
        column: cell,
    }


def measure_disk(bench: Bench) -> Figures:
    """Bytes per pair, compared with webdataset with one pair per sample."""
    rows, figures = [], {}
    for name, prepared in bench.prepared.items():
        written = bench.one_pair(name)
        ours = prepared["bytes"] / prepared["pairs"]
        others = {form: size / written["pairs"] for form, size in written["bytes"].items()}
        tokens = f"{prepared['tokens'] / prepared['pairs']:.1f}"
        rows.append(_size(name, "zeromt: shards, tables, index", tokens, ours, ours))
        rows.extend(_size(name, one_pair.FORMS[form], tokens, size, ours) for form, size in others.items())
        figures[name] = {"bytes_a_pair": ours, "one_pair": others, "times": {f: s / ours for f, s in others.items()}}
    measure.print_table("Size on disk, compared with one pair per sample", rows)
    return figures


def _size(name: str, form: str, tokens: str, size: float, ours: float) -> dict[str, str]:
    times = f"{size / ours:.1f}"
    return {
        "text": name,
        "form": form,
        "tokens per pair": tokens,
        "bytes per pair": f"{size:,.1f}",
        "times ours": times,
    }


def measure_reading(bench: Bench) -> Figures:
    """Tokens a second of padded batches, compared with webdataset with one pair per sample and with a trainer."""
    rows: list[dict[str, str]] = []
    figures: Figures = {}
    for name in bench.prepared:
        speeds = _speeds(bench, name)
        base = speeds[next(iter(READERS))]
        times = {reader: [b / s for b, s in zip(base, found, strict=True)] for reader, found in speeds.items()}
        rows.extend(_reading(name, r, measure.median(speeds[r]), measure.spread(times[r], ",.1f")) for r in speeds)
        figures[name] = {"tokens_per_second": speeds, "times": times}
    trained = train(bench.dataset, bench.work / "runs", updates=bench.arguments.updates)
    speed = trained["tokens_per_second"]
    base = figures[CORPUS]["tokens_per_second"][next(iter(READERS))]
    trainer = f"trainer, {trained['run']}"
    rows.append(_reading(CORPUS, trainer, speed, measure.spread([b / speed for b in base], ",.0f")))
    measure.print_table("Batches read; tokens of both sides, without padding", rows)
    print(f"the trainer waited for data {trained['waiting_for_data']:.2%} of its time")
    return {**figures, "trainer": trained}


def _speeds(bench: Bench, name: str) -> dict[str, list[float]]:
    """Tokens a second of every reader of a dataset; readers take turns."""
    samples = bench.one_pair(name)
    speeds: dict[str, list[float]] = {}

    def note(reader: str, result: Figures) -> None:
        speeds.setdefault(reader, []).append(result["tokens"] / result["seconds"])

    for _ in range(bench.arguments.rounds):
        for reader, fields in READERS.items():
            stream = {**STREAM, **fields}
            dataset = bench.prepared[name]["folder"]
            result = call(reading.read_epochs, dataset=dataset, stream=stream, seconds=READING_SECONDS)
            rows = round(result["pairs"] / result["micro_batches"])
            note(reader, result)
        for form, what in one_pair.FORMS.items():
            note(f"webdataset, {what}", call(one_pair.read, folder=samples["folder"], form=form, rows=rows))
    return speeds


def _reading(name: str, reader: str, speed: float, times: str) -> dict[str, str]:
    return {"text": name, "reader": reader, "tokens/s": f"{speed:,.0f}", "zeromt in the loop is faster by": times}


def measure_padding(bench: Bench) -> Figures:
    """The padding fraction of an epoch, compared with random and sorted batches under the same budgets."""
    rows, figures = [], {}
    for name, prepared in bench.prepared.items():
        fractions: dict[str, float] = call(
            padding.unplanned, dataset=prepared["folder"], tokens=TOKENS, max_rows=StreamSection().max_rows
        )
        for label, fields in (
            ("K=1", {"micro_batches": 1}),
            ("K=2", {"micro_batches": 2}),
            ("K=8", {"micro_batches": 8}),
            ("K=2, multiple of 8", {"micro_batches": 2, "length_multiple": 8}),
        ):
            read = call(reading.read_epochs, dataset=prepared["folder"], stream={**STREAM, **fields})
            fractions[f"zeromt {label}"] = 1 - read["tokens"] / read["padded"]
        rows.append({"text": name, **{n: f"{fraction:.2%}" for n, fraction in fractions.items()}})
        figures[name] = fractions
    measure.print_table(f"Padding at {TOKENS:,} padded tokens per side", rows)
    return figures


def measure_ranks(bench: Bench) -> Figures:
    """Bytes that all ranks together read in an epoch."""
    stream = {**STREAM, "micro_batches": LANES}
    found = call(reading.bytes_of_ranks, dataset=bench.dataset, stream=stream, world_sizes=WORLD_SIZES)
    rows = [
        {
            "ranks": ranks,
            "bytes read": f"{world['reading']:,}",
            "times the shards": f"{world['reading'] / found['shards']:.3f}",
            "read to open the dataset, all ranks": f"{world['opening']:,}",
        }
        for ranks, world in found["worlds"].items()
    ]
    measure.print_table(f"Reading of an epoch by all ranks (K={LANES}; shards of {found['shards']:,} bytes)", rows)
    return dict(found)


def measure_memory(bench: Bench) -> Figures:
    """Memory of a reader over an epoch of datasets of different sizes."""
    arguments = bench.arguments
    small = generate(bench.work, arguments.memory_pairs, seed=2)
    stream = {**STREAM, "micro_batches": 2, "window_pairs": arguments.memory_window, "prefetch_updates": 0}
    figures: dict[int, list[Figures]] = {times: [] for times in TIMES}
    folders = {
        times: bench.prepare(repeat(small, bench.work, times), f"memory-{times}", tokenizer=bench.dataset)["folder"]
        for times in figures
    }
    for _ in range(arguments.rounds):
        for times, results in figures.items():
            watches: list[measure.TreeMemory] = []
            read = call(
                reading.read_epochs,
                dataset=folders[times],
                stream=stream,
                started=lambda pid, found=watches: found.append(measure.TreeMemory(pid, seconds=0.02)),  # type: ignore[misc]
            )
            results.append({"pairs": read["pairs"], "anonymous": watches[0].finish().anonymous})
    peaks = {times: measure.median(r["anonymous"] for r in results) for times, results in figures.items()}
    rows = [
        {"pairs": f"{figures[t][0]['pairs']:,}", "anonymous MiB": f"{p / 2**20:.1f}", "times": f"{p / peaks[1]:.3f}"}
        for t, p in peaks.items()
    ]
    measure.print_table(f"Peak memory of a reader (K=2, windows of {arguments.memory_window:,} pairs)", rows)
    return {"rounds": figures, "times": {times: peak / peaks[1] for times, peak in peaks.items()}}


PARTS: Mapping[str, Callable[[Bench], Figures]] = {
    "preparation": measure_preparation,
    "disk": measure_disk,
    "reading": measure_reading,
    "padding": measure_padding,
    "ranks": measure_ranks,
    "memory": measure_memory,
}


def main(words: Iterable[str] | None = None) -> None:
    """Run the selected parts."""
    parser = measure.parser(__doc__)
    parser.add_argument("--corpus", type=Path, nargs=2, metavar=("SOURCE", "TARGET"), help="text, plain or .gz")
    parser.add_argument("--pairs", type=int, default=8 * 65_536, help="number of pairs of synthetic text")
    parser.add_argument("--multi30k", type=Path, default=ROOT / "data" / "multi30k-en-de", metavar="FOLDER")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--webdataset-pairs", type=int, default=20_000, help="pairs to write with one pair per sample")
    parser.add_argument("--updates", type=int, default=20, help="updates for which the trainer is timed")
    parser.add_argument(
        "--memory-pairs", type=int, default=100_000, help=f"pairs of the corpus that is repeated {TIMES} times"
    )
    parser.add_argument("--memory-window", type=int, default=16_384, help="stream.window_pairs of the memory part")
    arguments = parser.parse_args(words if words is None else list(words))
    figures: Figures = {"machine": measure.machine()}
    measure.print_machine(figures["machine"])
    with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
        work = Path(folder)
        text = Text(CORPUS, *arguments.corpus) if arguments.corpus else generate(work, arguments.pairs)
        bench = Bench(arguments, work, text)
        bench.prepare_texts()
        whole = bench.prepared[CORPUS]
        figures["text"] = {"name": text.name, "pairs": whole["pairs"], "tokens": whole["tokens"]}
        print(f"text: {text.name}, {whole['pairs']:,} pairs kept, {whole['tokens']:,} pieces")
        for part in arguments.parts:
            figures[part] = PARTS[part](bench)
    rows = [row for part in arguments.parts for row in ROWS[part](figures[part])]
    settings = {"pairs": whole["pairs"], "padded_tokens_a_side": TOKENS, "rounds": arguments.rounds}
    record(arguments, "data", rows, figures, settings=settings)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
