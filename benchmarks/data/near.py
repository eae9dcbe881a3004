"""Benchmark of near duplicates: CPU seconds and memory of `zeromt prepare` with and without them, on the same text.

A tenth of the pairs come a second time with an edit: without their last word, or with another one in front.
"""

import argparse
import tempfile
from collections.abc import Iterable
from pathlib import Path

from benchmarks.common import measure
from benchmarks.common.child import call
from benchmarks.common.results import record
from benchmarks.common.text import Text, generate
from benchmarks.data import preparation


def with_edits(text: Text, folder: Path) -> Text:
    """A text with every tenth pair once more at the end, edited."""
    copies = [folder / f"edited.{side}" for side in ("source", "target")]
    for path, copy in zip(text.sides, copies, strict=True):
        with path.open(encoding="utf-8") as lines, copy.open("w", encoding="utf-8") as file:
            again = []
            for number, line in enumerate(lines):
                file.write(line)
                if number % 10 == 0:
                    again.append(f"and {line}" if number % 20 else f"{line.rpartition(' ')[0] or line.strip()}\n")
            file.writelines(again)
    return Text("edited", *copies)


def main(words: Iterable[str] | None = None) -> int:
    """Run the benchmark."""
    parser = measure.parser(__doc__)
    parser.add_argument("--pairs", type=int, default=3_000_000, help="pairs of the text, before the edited ones")
    parser.add_argument("--workers", type=int, default=2, help="prepare.workers")
    arguments: argparse.Namespace = parser.parse_args(None if words is None else [*words])
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        folder = Path(work)
        source, target = with_edits(generate(folder, arguments.pairs), folder).sides
        given = {"source": source, "target": target, "workers": arguments.workers}
        results = {
            form: call(preparation.with_memory, near_duplicates=form, output=folder / form, **given)
            for form in ("keep", "pair")
        }
    rows = [
        {
            "near duplicates": form,
            "pairs": f"{result['pairs']:,}",
            "seconds": f"{result['seconds']:,.1f}",
            "CPU seconds": f"{result['processor_seconds']:,.1f}",
            "MiB of the process": f"{result['peaks']['process'] / 2**20:,.0f}",
            "of its largest worker": f"{result['peaks']['worker'] / 2**20:,.0f}",
        }
        for form, result in results.items()
    ]
    measure.print_table(f"{arguments.pairs:,} pairs and a tenth of them with an edit", rows)
    settings = {"pairs": arguments.pairs, "workers": arguments.workers}
    record(arguments, "near_duplicates", rows, {**results, "machine": measure.machine()}, settings=settings)
    return 0


if __name__ == "__main__":
    measure.run_main(main)
