"""`zeromt sweep`: train the runs, one after the other, and compare them."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from configs.process.progress import say
from configs.process.signals import STOPPED
from configs.process.streams import note
from launcher.machine.supervise import Supervisor
from trainer.runs.layout import complete_steps
from zeromt.sweeping.grid import Run, runs_of


def run(
    *,
    config: str,
    words: Sequence[str],
    plugins: Sequence[str],
    nproc: int | None,
    part: tuple[int, int] | None,
    merge: bool,
    dry_run: bool,
) -> int:
    """Train the runs of a sweep; those that have finished are left alone, and others go on from where they are.

    Args:
        config: a YAML file, or the name of a shipped run.
        words: see `runs_of`.
        plugins: files with components.
        nproc: processes of each run; None: as `zeromt launch local` chooses.
        part: (I, N): only every N-th run, from the I-th on.
        merge: only compare.
        dry_run: only print what would be trained.

    Returns:
        0; 75 stopped on request; 1 a run has failed: the others were trained all the same.

    Raises:
        UserError: the settings of a run are wrong; nothing is trained then.
    """
    runs = runs_of(config, words, plugins)
    own = runs if part is None else runs[part[0] - 1 :: part[1]]
    if dry_run:
        for one in own:
            say(f"{one.name}: {' '.join(one.settings)}")
        return 0
    options = [word for plugin in plugins for word in ("--plugins", plugin)]
    options += [] if nproc is None else ["--nproc", str(nproc)]
    with Supervisor("the run to save and stop") as supervisor:
        codes = {} if merge else _train(supervisor, config, own, options)
        if part is None:
            _compare(supervisor, runs)
        if supervisor.was_stopped:
            return STOPPED
    failed = [name for name, code in codes.items() if code]
    if failed:
        note(f"error: {len(failed)} of {len(own)} runs failed: {', '.join(failed)}; the same command tries them again")
    return 1 if failed else 0


def _train(supervisor: Supervisor, config: str, runs: Sequence[Run], options: Sequence[str]) -> Mapping[str, int]:
    """Exit codes by name; after a request to stop, none of further runs."""
    codes: dict[str, int] = {}
    for number, one in enumerate(runs, 1):
        if not supervisor.was_stopped:
            say(f"run {number} of {len(runs)}: {one.config.folder}")
            codes[one.name] = _zeromt(supervisor, "launch", "local", config, *options, *one.settings)
    return codes


def _compare(supervisor: Supervisor, runs: Sequence[Run]) -> None:
    """Print one table of all runs that have a checkpoint."""
    folders = [one.config.folder for one in runs]
    there = [folder for folder in folders if complete_steps(Path(folder))]
    for folder in folders:
        if folder not in there:
            note(f"{folder} has no checkpoint, and is not compared")
    if len(there) > 1:
        _zeromt(supervisor, "compare", *there, "--sentences", "0")


def _zeromt(supervisor: Supervisor, *words: str) -> int:
    return supervisor.run([sys.executable, "-P", "-m", "zeromt", *words], os.environ)
