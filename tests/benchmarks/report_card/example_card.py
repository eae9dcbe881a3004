"""The report card's command with four cells of no weight: `EXAMPLE_CARD` names the folder whose files end them."""

import os
import signal
import sys
from pathlib import Path

from benchmarks.common.measure import run_main
from benchmarks.device.report_card import __main__ as command
from benchmarks.device.report_card.cells import Cell

NAMES = ("one", "two", "three", "four")


def cells(folder: Path) -> tuple[Cell, ...]:
    """Each takes until a file of its name is in the folder."""
    module = "tests.benchmarks.report_card.example_cells"
    arguments = {"folder": str(folder)}
    return tuple(
        Cell(letter="a", name=name, function=f"{module}.waiting", arguments={**arguments, "name": name}, limit=600)
        for name in NAMES
    )


if __name__ == "__main__":
    command.CELLS = cells(Path(os.environ["EXAMPLE_CARD"]))  # type: ignore[attr-defined]
    signal.signal(signal.SIGTERM, command._end)
    sys.exit(run_main(command.main))
