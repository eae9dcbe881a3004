"""Benchmark of the data pipeline: preparation compared with SentencePiece alone, and reading.

Both use the same text, `--rounds` times in turns. Figures are medians over rounds, with the lowest and highest in
brackets; ratios are computed within a round. benchmarks/README.md explains them.

With --against COMMIT this tree and that commit, checked out into a temporary git worktree, prepare and read the text in
turns, with one tokenizer. Exit code 1 if the median of this tree is below `LEAST` of the commit.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.common import measure
from benchmarks.common.child import ROOT, call, git, worktree
from benchmarks.common.results import Row, figure, record
from benchmarks.common.text import Text, generate, head
from benchmarks.data import preparation, reading
from configs import UserError

LEAST = {"prepared_pairs_per_cpu_second": 0.9, "read_tokens_per_second": 0.7, "fill": 0.98}
"""Of another commit's."""
WORKERS = (1, 2)
STREAM = {"source_tokens": 4096, "target_tokens": 4096}
READERS = {
    "zeromt, in the loop": {"prefetch_updates": 0},
    "zeromt, a thread ahead": {},
    "zeromt, 2 processes": {"workers": 2},
}
READING_SECONDS = 2.0
"""Minimum time for which a dataset is read."""

Figures = dict[str, Any]


def measure_preparation(text: Text, dataset: Path, rounds: int) -> list[Row]:
    """Pairs and tokens a second, compared with SentencePiece alone; as many processes as SentencePiece has threads.

    Raises:
        UserError: two preparations wrote different shards.
    """
    source, target = text.sides
    by_way: dict[str, list[Figures]] = {}
    shards = set()
    for number in range(rounds):
        for workers in WORKERS:
            given: Figures = {"source": source, "target": target, "tokenizer": dataset}
            bare = call(preparation.bare_sentencepiece, threads=workers, **given)
            output = dataset.parent / f"prepared-{number}-{workers}"
            ours = call(preparation.prepare, output=output, workers=workers, **given)
            by_way.setdefault(f"sentencepiece, threads: {workers}", []).append(bare)
            ours["of_sentencepiece"] = bare["seconds"] / ours["seconds"]
            by_way.setdefault(f"zeromt prepare, workers: {workers}", []).append(ours)
            shards.add(tuple(ours["shards"]))
    if len(shards) > 1:
        raise UserError("preparation: the shards differ from round to round")
    rows: list[Row] = []
    for way, results in by_way.items():
        row: Row = {"part": "preparation", "way": way}
        row |= {f"{n}_per_second": measure.median(r[n] / r["seconds"] for r in results) for n in ("pairs", "tokens")}
        if "of_sentencepiece" in results[0]:
            row["of_sentencepiece"] = figure([r["of_sentencepiece"] for r in results])
        rows.append(row)
    return rows


def measure_reading(dataset: Path, rounds: int) -> list[Row]:
    """Tokens a second of padded batches, both sides without padding, for each way to read."""
    speeds: dict[str, list[float]] = {}
    for _ in range(rounds):
        for reader, fields in READERS.items():
            read = call(reading.read_epochs, dataset=dataset, stream={**STREAM, **fields}, seconds=READING_SECONDS)
            speeds.setdefault(reader, []).append(read["tokens"] / read["seconds"])
    return [{"part": "reading", "way": r, "tokens_per_second": figure(s)} for r, s in speeds.items()]


def compare(text: Text, dataset: Path, commit: str, rounds: int) -> list[Row]:
    """What this tree reaches of another commit, in rounds; the order of the trees alternates."""
    rows: list[Row] = []
    with worktree(commit, dataset.parent / "tree") as other:
        for number in range(rounds):
            rates: dict[Path, list[float]] = {}
            for tree in (ROOT, other) if number % 2 == 0 else (other, ROOT):
                output = dataset.parent / f"{number}-{len(rates)}"
                sides: Figures = dict(zip(("source", "target"), text.sides, strict=True))
                given: Figures = {"tree": tree, "output": output, "workers": 1, "tokenizer": dataset, **sides}
                made = call(preparation.prepare, **given)
                stream = {**STREAM, "prefetch_updates": 0}
                read = call(reading.read_epochs, tree=tree, dataset=output, stream=stream, seconds=READING_SECONDS)
                rates[tree] = [
                    made["pairs"] / made["processor_seconds"],
                    read["tokens"] / read["seconds"],
                    read["tokens"] / read["padded"],
                ]
            ratios = [ours / theirs for ours, theirs in zip(rates[ROOT], rates[other], strict=True)]
            rows.append({"round": str(number + 1), **dict(zip(LEAST, ratios, strict=True))})
    return [*rows, {"round": "median", **{name: measure.median(row[name] for row in rows) for name in LEAST}}]


def main(words: Iterable[str] | None = None) -> int:
    """Measure both, or compare with another commit; the exit code."""
    parser = measure.parser(__doc__)
    parser.add_argument("--corpus", type=Path, nargs=2, metavar=("SOURCE", "TARGET"), help="text, plain or .gz")
    parser.add_argument("--pairs", type=int, default=8 * 65_536, help="number of pairs of synthetic text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", metavar="COMMIT", help="compare with another commit")
    arguments = parser.parse_args(words if words is None else list(words))
    machine = measure.machine()
    measure.print_machine(machine)
    with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
        work = Path(folder)
        text = Text("text", *arguments.corpus) if arguments.corpus else generate(work, arguments.pairs)
        dataset, held_out = work / "prepared", head(text, work, 10).sides
        sides: Figures = {"source": text.source, "target": text.target}
        whole = call(preparation.prepare, **sides, output=dataset, workers=max(WORKERS), held_out=held_out)
        print(f"text: {text.name}, {whole['pairs']:,} pairs kept, {whole['tokens']:,} pieces")
        if arguments.against:
            commit = git("rev-parse", "--short", "--verify", f"{arguments.against}^{{commit}}")
            rows = compare(text, dataset, commit, arguments.rounds)
            measure.print_table(f"this tree over {commit}", rows)
            return int(any(rows[-1][name] < least for name, least in LEAST.items()))
        rows = measure_preparation(text, dataset, arguments.rounds)
        more = measure_reading(dataset, arguments.rounds)
    for part in (rows, more):
        measure.print_table(str(part[0]["part"]), part)
    settings = {"pairs": whole["pairs"], "rounds": arguments.rounds}
    record(arguments, "data", [*rows, *more], machine, settings=settings)
    return 0


if __name__ == "__main__":
    measure.run_main(main)
