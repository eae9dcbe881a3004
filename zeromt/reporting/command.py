"""`zeromt report`: make the report of a run again."""

from pathlib import Path

from configs.process.files import disk_errors
from configs.process.progress import say
from configs.process.text import visible


def run(*, run: str) -> int:
    """Write `report.md` in the folder, and say where it is.

    Args:
        run: the folder of a run.

    Raises:
        UserError: it is no run, or the report cannot be written.
    """
    from trainer.report import write

    place = Path(run)
    with disk_errors("RUN", place):
        written = write(place)
    say(f"report: {visible(str(written))}")
    return 0
