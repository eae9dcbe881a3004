"""The rows of `pipeline`'s result file."""

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.common.measure import median
from benchmarks.common.results import Row, figure

Figures = dict[str, Any]
LOOP, PROCESSES = "zeromt, in the loop", "zeromt, 2 processes"
WEBDATASET = "webdataset, "
PADDING_COLUMNS = {"zeromt K=1": "K = 1", "zeromt K=2": "K = 2", "zeromt K=8": "K = 8"}
PADDING_COLUMNS |= {"zeromt K=2, multiple of 8": "K = 2, multiples of 8", "random": "random", "sorted": "sorted"}


def preparation(figures: Figures) -> list[Row]:
    """Preparation, compared with SentencePiece alone."""

    def row(way: str, results: list[Figures]) -> Row:
        speeds = {f"{what}_per_second": median(r[what] / r["seconds"] for r in results) for what in ("pairs", "tokens")}
        return {"part": "preparation", "way": way, **speeds}

    rows = []
    for workers, bare in figures["sentencepiece"].items():
        rows.append(row(f"sentencepiece, threads: {workers}", bare))
        fraction = figure(figures["of_sentencepiece"][workers])
        rows.append(
            row(f"zeromt prepare, workers: {workers}", figures["prepare"][workers]) | {"of_sentencepiece": fraction}
        )
    return [*rows, row("the same, tokenizer training included", [figures["with_training"]])]


def disk(figures: Figures) -> list[Row]:
    """Bytes per pair, compared with TarWriter's default form."""
    rows: list[Row] = []
    for name, found in figures.items():
        form = next(iter(found["one_pair"]))
        sizes = {"zeromt_bytes": found["bytes_a_pair"], "one_pair_bytes": found["one_pair"][form]}
        rows.append({"part": "disk", "text": name, **sizes, "times": found["times"][form]})
    return rows


def reading(figures: Figures) -> list[Row]:
    """Reading speed, compared with the first webdataset form, and the tokens that a trainer consumes."""
    trainer = figures["trainer"]
    kept = ("tokens_per_second", "waiting_for_data")
    rows: list[Row] = [{"part": "trainer", **{key: trainer[key] for key in kept}}]
    for name, found in figures.items():
        if name == "trainer":
            continue
        speeds = found["tokens_per_second"]
        other = next(reader for reader in speeds if reader.startswith(WEBDATASET))
        rows.append(
            {
                "part": "reading",
                "text": name,
                "zeromt": median(speeds[LOOP]),
                "webdataset": median(speeds[other]),
                "times": figure(found["times"][other]),
                "two_processes": median(speeds[PROCESSES]),
            }
        )
    return rows


def padding(figures: Figures) -> list[Row]:
    """Padding fraction by batching method."""
    return [
        {"part": "padding", "text": name, **{PADDING_COLUMNS[way]: fraction for way, fraction in fractions.items()}}
        for name, fractions in figures.items()
    ]


def ranks(figures: Figures) -> list[Row]:
    """Bytes read by all ranks over the bytes of the shards."""
    return [
        {"part": "all ranks", "ranks": int(number), "times_the_shards": world["reading"] / figures["shards"]}
        for number, world in figures["worlds"].items()
    ]


def memory(figures: Figures) -> list[Row]:
    """Memory of a reader by size of the corpus."""
    return [
        {
            "part": "memory",
            "pairs": found[0]["pairs"],
            "anonymous_mib": median(r["anonymous"] for r in found) / 2**20,
        }
        for found in figures["rounds"].values()
    ]


ROWS: Mapping[str, Callable[[Figures], list[Row]]] = {
    "preparation": preparation,
    "disk": disk,
    "reading": reading,
    "padding": padding,
    "ranks": ranks,
    "memory": memory,
}
