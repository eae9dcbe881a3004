"""The progress bar of a run, by tqdm, if rank 0's standard error is a terminal."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from configs.process.terminal import is_live, unfiltered
from trainer.terminal.forecast import Outlook, interval

SECONDS_BETWEEN = 0.5


@dataclass(kw_only=True, slots=True, frozen=True)
class View:
    """The contents of a bar."""

    step: int
    last_step: int
    outlook: Outlook
    activity: str | None
    """The current activity; None between two."""


def describe(view: View) -> str:
    """What stands right of the bar."""
    outlook = view.outlook
    said = [view.activity or "step", f"{view.step:,} of {view.last_step:,}"]
    if outlook.seconds_per_update is not None and outlook.seconds_left is not None:
        said += [f"{outlook.seconds_per_update:.3g} s/update", f"{interval(outlook.seconds_left)} left"]
    return "  ".join(said)


@contextlib.contextmanager
def bar_shown(view: Callable[[], View], *, is_main: bool) -> Iterator[None]:
    """Show a bar on rank 0 until the block ends, if there is a terminal for it.

    A thread draws it from state that the loop keeps anyway, also while a step, a save or an evaluation takes long.
    """
    if not is_main or not is_live(sys.stderr):
        yield
        return
    is_over = threading.Event()

    def draw() -> None:
        while not is_over.wait(SECONDS_BETWEEN):
            seen = view()
            bar.n = seen.outlook.fraction
            bar.set_description_str(describe(seen))

    redirected = logging_redirect_tqdm() if is_live(sys.stdout) else contextlib.nullcontext()
    layout, file = "{percentage:3.0f}% |{bar}| {desc}", unfiltered(sys.stderr)
    with tqdm(total=1.0, bar_format=layout, dynamic_ncols=True, leave=False, file=file) as bar, redirected:
        thread = threading.Thread(target=draw, name="bar", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join(2 * SECONDS_BETWEEN)
            bar.disable = thread.is_alive()  # the terminal takes nothing (Ctrl-S): closing the bar would wait for it
