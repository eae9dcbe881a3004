"""Benchmark of the planner at the scale of web-crawled corpora, without a cluster and without text.

Writes a dataset of synthetic lengths (eight gigabytes for two billion pairs) and does one rank's work in new processes:
opening, dealing a pass, planning a window, resuming in the middle of an epoch. Also measures how well windows shuffle,
how much they pad, and how many micro-batches are empty when lanes run dry. benchmarks/README.md says more.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import measure
from benchmarks.common.child import call
from benchmarks.common.results import Row, figure, record
from benchmarks.data import planning
from benchmarks.data.synthetic import write_dataset
from data_pipeline.prepared.dataset import Dataset

MIB = 2**20
UPDATES = (10, 1_000, 100_000)
WINDOWS = (1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576)
SHUFFLED_LANES = 64
BALANCED_LANES = (8, 64, 512, 4096)
BLOCKS_A_LANE = (7.5, 8, 8.5, 32.5, 128.5)
BUDGET = 4096


def main() -> None:
    """Write the dataset, measure, and print the tables."""
    parser = measure.parser(__doc__)
    parser.add_argument("--pairs", type=int, default=2_000_000_000)
    parser.add_argument("--ranks", type=int, default=4096, help="K is this and twice this")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"machine": measure.machine(), "pairs": arguments.pairs, "ranks": arguments.ranks}
    measure.print_machine(figures["machine"])
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        folder = Path(work) / "dataset"
        begun = time.perf_counter()
        write_dataset(folder, arguments.pairs)
        index = Dataset.load(folder).index
        print(f"{index.pairs:,} pairs, {index.blocks:,} blocks, {len(index.shards):,} shards", end="")
        print(f", written in {time.perf_counter() - begun:.0f} s")
        figures["scale"] = measure_scale(folder, arguments.ranks, arguments.rounds)
        tokens = max(index.source_tokens, index.target_tokens)
        figures["resume"] = measure_resume(folder, arguments.ranks, tokens, arguments.rounds)
        figures["shuffling"] = measure_shuffling(folder, index.blocks)
        figures["balance"] = measure_balance(folder, index.blocks)
    settings = {"pairs": index.pairs, "blocks": index.blocks, "shards": len(index.shards), "ranks": arguments.ranks}
    record(arguments, "planner", rows_of(figures), figures, settings=settings)


def rows_of(figures: dict[str, Any]) -> list[Row]:
    """The rows of the result file."""
    rows: list[Row] = [
        {
            "part": "one rank",
            "lanes": lanes,
            "open_seconds": r["open"],
            "construct_seconds": r["plan"],
            "deal_seconds": r["deal"],
            "window_seconds": r["window"],
            "anonymous_mib": r["anonymous"] / MIB,
            "resident_mib": r["resident"] / MIB,
        }
        for lanes, r in zip((figures["ranks"], 2 * figures["ranks"]), figures["scale"], strict=True)
    ]
    for update, found in figures["resume"]["rounds"].items():
        seconds = figure(r["open"] + r["deal"] + r["window"] for r in found)
        rows.append({"part": "resume", "update": update, "seconds": seconds})
    kept = ("window_pairs", "distance", "same_block", "padding")
    rows += [{"part": "shuffling", **{key: r[key] for key in kept}} for r in figures["shuffling"]]
    by_blocks = [r for r in figures["balance"] if r["by_blocks"]]
    blocks_a_lane = sorted({r["blocks"] / r["lanes"] for r in by_blocks})
    for number in blocks_a_lane:
        empty = figure(r["empty"] for r in by_blocks if r["blocks"] / r["lanes"] == number)
        rows.append({"part": "empty", "blocks_a_lane": number, "empty": empty})
    return rows


def measure_scale(folder: Path, ranks: int, rounds: int) -> list[dict[str, Any]]:
    """Time and memory of one rank, for K = ranks and K = 2 x ranks."""
    bare = _watched(planning.nothing)
    results, rows = [], []
    for num_lanes in (ranks, 2 * ranks):
        found = [
            _watched(planning.scale, folder=folder, num_lanes=num_lanes, lane=number * num_lanes // rounds)
            for number in range(rounds)
        ]
        result = {name: measure.median([f[name] for f in found]) for name in found[0]}
        results.append({**result, "rounds": found, "bare": bare})
        rows.append(
            {
                "K": f"{num_lanes:,}",
                "units dealt": f"{result['units']:,.0f}",
                "open s": f"{result['open']:.2f}",
                "plan s": f"{result['plan']:.3f}",
                "deal s": f"{result['deal']:.2f}",
                "next pass s": f"{result['next_pass']:.2f}",
                "windows per lane": f"{result['windows_a_lane']:.0f}",
                "pairs per window": f"{result['window_pairs']:,.0f}",
                "window s": f"{result['window']:.3f}",
                "anonymous MiB": f"{result['anonymous'] / MIB:,.0f}",
                "with files": f"{result['resident'] / MIB:,.0f}",
            }
        )
    measure.print_table("One rank: seconds, and the highest memory of its process", rows)
    print(f"(a process that only imports: {bare['anonymous'] / MIB:.0f} and {bare['resident'] / MIB:.0f} MiB)")
    return results


def measure_resume(folder: Path, ranks: int, tokens: int, rounds: int) -> dict[str, Any]:
    """Seconds to resume at several updates of an epoch, in turns; checks the pairs against an undisturbed epoch."""
    num_lanes = ranks
    while num_lanes > 1 and tokens / BUDGET / num_lanes < 1.2 * max(UPDATES):
        num_lanes //= 2
    lane = num_lanes // 2
    places = call(planning.walk, folder=folder, num_lanes=num_lanes, lane=lane, updates=UPDATES)["places"]
    results: dict[int, list[dict[str, Any]]] = {place["update"]: [] for place in places}
    for _ in range(rounds):
        for place in places:
            where = {name: place[name] for name in ("window", "position", "before")}
            result = call(planning.resume, folder=folder, num_lanes=num_lanes, lane=lane, **where)
            if result["digest"] != place["digest"]:
                raise AssertionError(f"update {place['update']} has different pairs after a resume")
            results[place["update"]].append(result)
    rows = [
        {
            "update": f"{update:,}",
            **{f"{n} s": measure.spread([r[n] for r in found], ".3f") for n in ("open", "deal", "window")},
            "together s": measure.spread([r["open"] + r["deal"] + r["window"] for r in found], ".3f"),
            "processor s": measure.spread([r["processor"] for r in found], ".3f"),
        }
        for update, found in results.items()
    ]
    measure.print_table(f"Resuming in the middle of an epoch, K = {num_lanes}: same pairs as undisturbed", rows)
    return {"lanes": num_lanes, "places": places, "rounds": results}


def measure_shuffling(folder: Path, num_blocks: int) -> list[dict[str, Any]]:
    """Shuffling and padding of windows of several sizes."""
    results = [
        call(planning.shuffling, folder=folder, num_lanes=SHUFFLED_LANES, window_pairs=window, tokens=BUDGET)
        for window in WINDOWS
    ]
    rows = [
        {
            "window of pairs": f"{r['window_pairs']:,}",
            "dealt by": _unit_name(r["units"], num_blocks),
            "neighbours' distance": f"{r['distance']:.4f}",
            "of one block": f"{r['same_block']:.4f}",
            "padding": f"{r['padding']:.2%}",
            "s per million pairs": f"{r['seconds_a_million']:.2f}",
        }
        for r in results
    ]
    measure.print_table(f"Shuffling (a full permutation has distance 1) and padding, K = {SHUFFLED_LANES}", rows)
    return results


def measure_balance(folder: Path, num_blocks: int) -> list[dict[str, Any]]:
    """Empty micro-batches of an epoch, by K and by blocks per lane."""
    whole = num_blocks / BALANCED_LANES[-1]
    blocks_a_lane = [*BLOCKS_A_LANE, *([whole] if whole > BLOCKS_A_LANE[-1] else [])]
    cases = [(k, blocks) for k in BALANCED_LANES for blocks in blocks_a_lane if round(k * blocks) <= num_blocks]
    results = [call(planning.balance, folder=folder, num_lanes=k, blocks_a_lane=blocks) for k, blocks in cases]
    rows = [
        {
            "K": f"{r['lanes']:,}",
            "blocks per lane": f"{r['blocks'] / r['lanes']:.1f}",
            "dealt by": "blocks" if r["by_blocks"] else "pairs",
            "updates": f"{r['updates']:,}",
            "empty": f"{r['empty']:.2%}",
            "lanes sampled": str(r["lanes_looked_at"]),
        }
        for r in results
    ]
    measure.print_table("Empty micro-batches at an epoch's end, of all", rows)
    return results


def _unit_name(units: int, num_blocks: int) -> str:
    if units == num_blocks:
        return "blocks"
    return "shards" if units < num_blocks else "pairs"


def _watched(function: Any, **arguments: Any) -> dict[str, Any]:
    """The result of a call in a child process, with the process's peak memory."""
    watches: list[measure.TreeMemory] = []
    result = call(function, started=lambda pid: watches.append(measure.TreeMemory(pid, seconds=0.02)), **arguments)
    peak = watches[0].finish()
    return {**result, "anonymous": peak.anonymous, "resident": peak.resident}


if __name__ == "__main__":
    main()
