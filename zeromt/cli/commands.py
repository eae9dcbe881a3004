"""Commands that can be interrupted. If it matters, they install signal handlers before any heavy import.

They read the configuration before importing training or preparation, so that its errors show at once.
"""

import contextlib
import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from configs.process.signals import STOP_SIGNALS, STOPPED, tell_in_handler
from launcher import resolve
from zeromt.cli.core import tools


def prepare(
    *,
    config: str,
    overrides: Sequence[str],
    part: tuple[int, int] | None,
    merge: bool,
    replace: bool,
    tokenizer_of: str | None,
    plugins: Sequence[str],
    check: bool,
) -> int:
    """`zeromt prepare`: raw text -> tokenizer, shards and index; or one part, or the merge of all parts.

    Raises:
        UserError: the configuration or the corpus is wrong.
    """
    with _ending_at_a_signal():
        if tokenizer_of is not None:
            folder = resolve("trainer.runs.parents:tokenizer_folder")(tokenizer_of)
            overrides = [*overrides, f"prepare.tokenizer.path={json.dumps(str(folder))}"]
        section = resolve("configs:load_run")(config, overrides, plugins=plugins).prepare
        if check:
            resolve("data_pipeline.preparation.spans:make_cleaner")(section, ())
            return 0
        which = resolve("data_pipeline.preparation.prepare:Part")(*part) if part is not None else None
        run = resolve("data_pipeline.preparation.prepare:run")
        run(section, part=which, merge=merge, replace=replace)
    return 0


def train(
    *,
    config: str,
    overrides: Sequence[str],
    fresh: bool,
    reset: str | None,
    parent: str | None,
    plugins: Sequence[str],
    check: bool,
) -> int:
    """`zeromt train`: train in one process, or as one rank if torchrun started it.

    Returns:
        The exit code.

    Raises:
        UserError: the configuration is wrong, or another job writes the run.
    """
    is_main = os.environ.get("RANK", "") in ("", "0")
    run = resolve("configs:load_run")(config, overrides, plugins=plugins)
    with resolve("configs.process.files:naming")("prepare.output"):
        is_there = resolve("configs.process.files:is_file")(Path(run.prepare.output) / "index.json")
    if run.reads_prepared and is_there:
        resolve("launcher.start.datasets:check_datasets")(run, config, overrides, plugins, parent=parent)
    if check:
        return int(resolve("launcher.start.run_folder:check_in_child")(config, overrides, plugins))
    resolve("configs.process.signals:stop_request")()  # before torch is imported
    if is_main:
        resolve("launcher.start.run_folder:make_ready")(run.folder, fresh=fresh, reset=reset, parent=parent)
    folder = Path(run.folder)
    is_new = is_main and not folder.exists()
    given = {"reset": frozenset(reset.split(",") if reset else ()), "parent": parent, "plugins": plugins}
    try:
        code = int(resolve("trainer.main:run")(config, list(overrides), **given))
    finally:
        if is_new:
            resolve("launcher.start.run_folder:remove_refused")(folder)
    return int(resolve("configs.process.with_torch:leave")(code))


def status(*, run: str | None, as_json: bool) -> int:
    """`zeromt status`: print what runs are doing, or how far the folder of a tool is."""
    for tool in tools():
        marker, target = getattr(tool, "STATUS", ("", ""))
        if run is not None and marker and (Path(run) / marker).is_file():
            return int(resolve(target)(Path(run), as_json=as_json))
    return int(resolve("launcher.monitoring.show:status")(run=run, as_json=as_json))


@contextlib.contextmanager
def _ending_at_a_signal() -> Iterator[None]:
    """In this block, a signal ends the process at once with exit code 75.

    Every step of a preparation ends with a rename, so there is nothing to save; and an exception raised by a handler in
    the middle of a process pool might get lost.
    """

    def end(number: int, _: FrameType | None) -> None:
        _kill_workers()
        name = signal.Signals(number).name
        tell_in_handler(f"\nzeromt: {name}: ended; the same command resumes")
        os._exit(STOPPED)

    # Python's own helper then removes the pool's semaphores, with a warning that is suppressed here.
    quiet = "ignore:resource_tracker:UserWarning"
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, [os.environ.get("PYTHONWARNINGS"), quiet]))
    before = {}
    for number in STOP_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _kill_workers() -> None:
    """Kill the processes that this process's pool has started or is starting."""
    for listed in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for pid in listed.read_text().split():
                # Python's helper that removes semaphores is spared: it ends by itself.
                if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(int(pid), signal.SIGKILL)
