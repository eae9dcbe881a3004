"""`zeromt report`: make the report of a run or a pipeline again."""

from pathlib import Path

from configs.process.files import disk_errors
from configs.process.progress import say
from configs.process.text import visible
from zeromt.pipeline.options import is_pipeline


def run(*, run: str) -> int:
    """Write `report.md` in the folder, and say where it is.

    Args:
        run: the folder of a run, or of a pipeline.

    Raises:
        UserError: it is neither, or the report cannot be written.
    """
    place = Path(run)
    if is_pipeline(run):
        from zeromt.pipeline.report import write as of_pipeline

        written = of_pipeline(place)
    else:
        from trainer.report import write

        with disk_errors("RUN", place):
            written = write(place)
    say(f"report: {visible(str(written))}")
    return 0
