"""Peak memory of preparing corpora of different sizes with default settings, tokenizer training included.

The memory of the whole process tree is sampled every 50 ms. The peak is the highest sum of proportional set sizes
(PSS), which count shared pages once. benchmarks/README.md says more.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import measure
from benchmarks.common.child import call
from benchmarks.common.results import Row, record
from benchmarks.common.text import Text, generate
from benchmarks.data import preparation
from configs import UserError

MIB = 2**20


def main() -> None:
    """Prepare synthetic text of each size."""
    parser = measure.parser(__doc__)
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--workers", type=int, default=0, help="prepare.workers; 0 (the default) uses every core")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"machine": measure.machine(), "workers": arguments.workers, "sizes": []}
    measure.print_machine(figures["machine"])
    for pairs in arguments.pairs:
        with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
            text = generate(Path(folder), pairs)
            figures["sizes"].append(measure_size(text, Path(folder) / "dataset", arguments.workers))
    first = figures["sizes"][0]["peak"]
    rows = [
        {
            "pairs": f"{size['pairs']:,}",
            "text MB": f"{size['text_bytes'] / 1e6:,.0f}",
            "seconds": f"{size['seconds']:,.0f}",
            "peak MiB": f"{size['peak']['proportional'] / MIB:,.0f}",
            "times the first": f"{size['peak']['proportional'] / first['proportional']:.3f}",
            "sum of RSS": f"{size['peak']['resident'] / MIB:,.0f}",
            "anonymous": f"{size['peak']['anonymous'] / MIB:,.0f}",
            "largest process": f"{size['peak']['largest'] / MIB:,.0f}",
            "processes": str(size["peak"]["num_processes"]),
        }
        for size in figures["sizes"]
    ]
    measure.print_table("Peak memory of preparation", rows)
    record(arguments, "preparation_memory", rows_of(figures["sizes"]), figures, settings={"workers": arguments.workers})


def rows_of(sizes: list[dict[str, Any]]) -> list[Row]:
    """The rows of the result file."""
    first = sizes[0]["peak"]["proportional"]
    return [
        {
            "pairs": size["pairs"],
            "text_mb": size["text_bytes"] / 1e6,
            "seconds": size["seconds"],
            "peak_mib": size["peak"]["proportional"] / MIB,
            "times_the_first": size["peak"]["proportional"] / first,
            "largest_process_mib": size["peak"]["largest"] / MIB,
            "processes": size["peak"]["num_processes"],
        }
        for size in sizes
    ]


def measure_size(text: Text, output: Path, workers: int) -> dict[str, Any]:
    """Prepare a text and sample its memory."""
    watches: list[measure.TreeMemory] = []
    result = call(
        preparation.prepare,
        source=text.source,
        target=text.target,
        output=output,
        workers=workers,
        started=lambda pid: watches.append(measure.TreeMemory(pid)),
    )
    return {
        "pairs": result["pairs"],
        "seconds": result["seconds"],
        "text_bytes": sum(path.stat().st_size for path in text.sides),
        "peak": watches[0].finish().to_json(),
    }


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
