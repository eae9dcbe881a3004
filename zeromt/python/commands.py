"""Functions that write files: preparing, training and exporting, each run as a command in a new process.

So they can be called any number of times, in any thread and in a notebook: signal handlers, environment, threads,
memory and devices belong to the child and are gone when it has ended. No thread is started here.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from configs import UserError
from configs.load import folder_of
from configs.process.terminal import escaped
from launcher.machine.supervise import as_child
from trainer.runs.layout import METRICS_FILE, STATUS_FILE
from trainer.runs.status import EXIT_CODES, read_status
from zeromt.python.following import Follower
from zeromt.python.lists import as_list

OnLog = Callable[[Mapping[str, Any]], object]
"""A callback for a line of metrics.jsonl: `kind` (train, evaluation, score or event), `step`, and figures by name."""

_POLL_SECONDS = 0.1
_ERROR = "zeromt: error: "


class CommandError(RuntimeError):
    """A command failed for another reason than the user's input; the message gives the known details."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Outcome:
    """How a training ended."""

    folder: Path
    """The run's folder, for `zeromt.load`."""
    state: Literal["finished", "stopped"]
    """A stopped run has saved; the same call resumes it."""
    step: int | None
    """Updates done."""
    reason: str | None
    """Why it ended: the limit it reached, "stop file" (`zeromt stop`) or a signal's name."""


def prepare(
    config: str | Path,
    *,
    overrides: Iterable[str] = (),
    plugins: Iterable[str | Path] = (),
    tokenizer_of: str | Path | None = None,
    quiet: bool = False,
) -> None:
    """Raw text -> tokenizer, shards and index; `zeromt prepare`. An existing dataset is not made again.

    Args:
        config: a YAML file, or the name of a shipped run.
        overrides: `section.key=value` settings.
        plugins: Python files with components, beside those that the configuration names; they are run in the child.
        tokenizer_of: a run whose tokenizer is used, instead of training one.
        quiet: print nothing of what the command says.

    Raises:
        UserError: the configuration or the corpus is wrong.
        CommandError: it failed otherwise, or was stopped by a signal; the same call resumes it.
    """
    options = [] if tokenizer_of is None else ["--tokenizer-of", str(tokenizer_of)]
    _check(_run(_arguments("prepare", config, overrides, plugins, options), quiet=quiet), "prepare")


def train(
    config: str | Path,
    *,
    overrides: Iterable[str] = (),
    on_log: OnLog | None = None,
    nproc: int | None = None,
    fresh: bool = False,
    parent: str | Path | None = None,
    cooldown: int | None = None,
    plugins: Iterable[str | Path] = (),
    quiet: bool = False,
) -> Outcome:
    """Train, or resume a run, on this machine; `zeromt launch local`.

    On an exception in `on_log`, or Ctrl-C, the run saves and stops, and then the exception is raised. A second Ctrl-C
    does not wait for that. When the calling process (or thread) ends, the run saves and stops too.

    Args:
        config: a YAML file, or the name of a shipped run.
        overrides: `section.key=value` settings.
        on_log: called with every new line of metrics.jsonl, soon after it is written.
        nproc: processes; None: one per GPU, or per core without a GPU, up to stream.micro_batches.
        fresh: start at step 0, and rename an existing run.
        parent: RUN[@step] with the initial weights of a run without a checkpoint.
        cooldown: updates over which the rate decays, if the run goes on with all that `parent` has.
        plugins: Python files with components, beside those that the configuration names; they are run in the children.
        quiet: print nothing of what the command says.

    Raises:
        UserError: the configuration is wrong, the dataset is not prepared, or another job writes the run.
        CommandError: the run failed.
    """
    if on_log is not None and not callable(on_log):
        raise TypeError(f"on_log: {type(on_log).__name__}; give a function that takes a line of figures, such as print")
    options = [] if nproc is None else ["--nproc", str(nproc)]
    options += ["--fresh"] if fresh else []
    options += [] if parent is None else ["--from", str(parent)]
    options += [] if cooldown is None else ["--cooldown", str(cooldown)]
    overrides = as_list(overrides, str, "overrides")
    arguments = _arguments("launch local", config, overrides, plugins, options)
    folder = folder_of(str(config), overrides).absolute()
    follower = Follower(folder / METRICS_FILE)

    def tell() -> None:
        for line in follower.lines():
            if on_log is not None and line:
                on_log(line)

    with contextlib.closing(follower):
        ended = _run(arguments, quiet=quiet, look=tell if on_log is not None else None)
    status = read_status(folder / STATUS_FILE)
    _check(ended, "train", allowed=(0, EXIT_CODES["stopped"]), known=None if status is None else status.error)
    return Outcome(
        folder=folder,
        state="finished" if ended.code == 0 else "stopped",
        step=None if status is None else status.step,
        reason=None if status is None else status.stop_reason,
    )


def export(
    run: str | Path,
    output: str | Path,
    *,
    format: Literal["safetensors", "huggingface", "ctranslate2"],
    dtype: str | None = None,
    quantization: str | None = None,
    raw_weights: bool = False,
    plugins: Iterable[str | Path] = (),
    quiet: bool = False,
) -> Path:
    """Write a trained model for another program, checked; `zeromt export`. If the check fails, nothing is left.

    Args:
        run: a run's folder, or a checkpoint.
        output: a new folder.
        format: the program to export for.
        dtype: of the stored weights, for safetensors and huggingface; default float32.
        quantization: for ctranslate2; none by default.
        raw_weights: use the weights themselves, even if there is a moving average.
        plugins: Python files with components that the run was trained with.
        quiet: print nothing of what the command says.

    Returns:
        `output`.

    Raises:
        UserError: the other program does not support the model, or the input is wrong.
        CommandError: the exported model does not compute what the model does; its folder is removed.
    """
    options = ["--format", format, "--output", str(output)]
    options += [] if dtype is None else ["--dtype", dtype]
    options += [] if quantization is None else ["--quantization", quantization]
    options += ["--raw-weights"] if raw_weights else []
    _check(_run(_arguments("export", run, (), plugins, options), quiet=quiet), "export")
    return Path(output)


def _arguments(
    command: str,
    subject: str | Path,
    overrides: Iterable[str],
    plugins: Iterable[str | Path],
    options: Sequence[str],
) -> list[str]:
    named = as_list(plugins, (str, Path), "plugins")
    files = [argument for plugin in named for argument in ("--plugins", str(plugin))]
    return [*command.split(), *options, *files, "--", str(subject), *as_list(overrides, str, "overrides")]


@dataclass(kw_only=True, slots=True, frozen=True)
class _Ended:
    """A command that has ended."""

    code: int
    """Minus a signal's number where that ended it."""
    errors: Sequence[str]
    """What it said is wrong."""
    last: str
    """Its last line."""


def _run(arguments: Sequence[str], *, quiet: bool, look: Callable[[], None] | None = None) -> _Ended:
    """Run a command until it ends, and print its output in this process, where a notebook shows it.

    Any exception meanwhile (from `look`, printing or Ctrl-C) makes it save and stop, and is then raised.
    """
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", *as_child(), *arguments],
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # a terminal's Ctrl-C only reaches this process, which passes it on
    )
    assert child.stdout is not None
    errors, last = [], ""
    with child.stdout:
        try:
            for line in _lines_until_end(child, child.stdout):
                if line is not None:
                    errors += [line.removeprefix(_ERROR)] if line.startswith(_ERROR) else []
                    last = line or last
                    if not quiet:
                        _show(line)
                elif look is not None:
                    look()
            if look is not None:
                look()
        except BaseException:
            child.send_signal(signal.SIGTERM)
            for line in _lines_until_end(child, child.stdout):
                if line is not None and not quiet:
                    with contextlib.suppress(Exception):  # the first one counts
                        _show(line)
            raise
    return _Ended(code=child.wait(), errors=errors, last=last)


def _show(line: str) -> None:
    print(escaped(line) if sys.stdout.isatty() else line, flush=True)


def _lines_until_end(child: subprocess.Popen[bytes], output: IO[bytes]) -> Iterator[str | None]:
    """A child's output, line by line, and None at least every tenth of a second, until it has ended."""
    held = b""
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while True:
            has_ended = child.poll() is not None  # asked before reading: what it wrote last is read after that
            while selector.select(0 if has_ended else _POLL_SECONDS):
                read = os.read(output.fileno(), 1 << 16)
                if not read:
                    child.wait()
                    has_ended = True
                    break
                *lines, held = (held + read).split(b"\n")
                yield from (line.decode(errors="replace").rpartition("\r")[2] for line in lines)
                if not has_ended:
                    break
            yield None
            if has_ended:  # not the pipe's end: a helper process of Python's may hold it a moment longer
                break
    if held:
        yield held.decode(errors="replace")


def _environment() -> dict[str, str]:
    """The child's environment: this process's, with this package on the path if it is not installed."""
    environment = dict(os.environ)
    root = str(Path(__file__).resolve().parents[2])
    if Path(root).name not in ("site-packages", "dist-packages"):
        paths = [root, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
        environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    return environment | {"PYTHONUNBUFFERED": "1"}


def _check(ended: _Ended, what: str, *, allowed: Sequence[int] = (0,), known: str | None = None) -> None:
    """Raise the error that the command's end stands for, unless this end is allowed."""
    if ended.code in allowed:
        return
    if ended.code == EXIT_CODES["refused"]:
        raise UserError("\n".join(ended.errors) or known or ended.last)
    if ended.code < 0:
        raise CommandError(f"zeromt {what}: ended by {signal.Signals(-ended.code).name}")
    raise CommandError(f"zeromt {what}: exit code {ended.code}: {'; '.join(ended.errors) or known or ended.last}")
