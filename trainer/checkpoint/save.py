"""Saving: when and what, the copy in host memory, the thread that writes it, and the commit over all ranks.

A save is a two-phase commit. First every rank writes its shard into a `tmp-` folder and fsyncs it: in a thread from a
copy in host memory, while training continues, or at once. Then, in `Saver.commit`, the ranks agree that all shards are
there, and rank 0 writes the manifest, renames the folder and moves the `latest` pointer. A failure before the rename
leaves nothing.
"""

import contextlib
import logging
import math
import os
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor

from configs import RunConfig
from configs.process.files import FileError
from configs.process.files.inside import sync_folder
from configs.process.gpus import page_locked_bytes
from data_pipeline.order.state import StreamState
from trainer.checkpoint import format as format_
from trainer.checkpoint.format import FLOAT_BYTES, Named
from trainer.checkpoint.newest import attempt, of_rank, point_to, publish, remove_leftovers, retain
from trainer.checkpoint.state import TrainerState
from trainer.engines import Engine
from trainer.engines.batches import ParameterState
from trainer.ranks.device import is_host, wait
from trainer.ranks.distributed import World
from trainer.runs.failure import TrainingError
from trainer.runs.history import History
from trainer.runs.layout import CHECKPOINTS, TEMPORARY, step_folder

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
COPIES_FRACTION = 0.5
"""Largest fraction of a machine's free memory that copies of shards take."""
_SMALL_FILES_BYTES = 4 << 20

Saved = tuple[int | None, bool]
"""A step, and whether it was saved with its scores."""


@dataclass(kw_only=True, slots=True, frozen=True)
class RunIdentity:
    """What every checkpoint of a run holds besides weights and state."""

    config_yaml: str
    tokenizer_files: Mapping[str, bytes]
    manifest: Mapping[str, Any]
    """Stage, precision, versions, fingerprints and parent."""


@dataclass(kw_only=True, slots=True)
class _Save:
    """A save that has begun."""

    step: int
    temporary: Path
    state: Mapping[str, Any]
    scores: Mapping[int, float]
    replaces: bool
    """Whether older checkpoints may be deleted for it."""
    before: Saved
    """What was saved before it."""
    begin: float
    stopped_seconds: float = 0.0
    records: dict[str, format_.Record] = field(default_factory=dict)
    problem: str | None = None
    writer: threading.Thread | None = None


@dataclass(kw_only=True, slots=True)
class Saver:
    """Owns a run's `checkpoints/` folder. All ranks make the same calls. Training continues after a failed save.

    The run's history gets what it is started with, and where its data stand.
    """

    config: RunConfig
    world: World
    engine: Engine
    state: TrainerState
    identity: RunIdentity
    stream: Callable[[], StreamState]
    """Gives the position of this rank's lanes."""
    event: Callable[[int, dict[str, Any]], None]
    """Writes an event of a step to metrics.jsonl."""
    activities: Callable[..., AbstractContextManager[None]]
    has_own: bool
    """Whether it resumes from a checkpoint of its own, and not from another run's."""
    has_parents: bool
    """Whether it continues another run, with all of its state."""
    refused: set[str]
    """Names of checkpoints; see `find_newest`."""
    newest_loss: float = field(init=False)
    """Of the newest update, applied or skipped, by the weights before it; the same on all ranks."""
    is_overdue: bool = field(default=False, init=False)
    """Whether the newest save was left out, because of weights that are not good; the same on all ranks."""
    _history: History | None = field(default=None, init=False)
    _current: _Save | None = field(default=None, init=False)
    _saved: Saved = field(init=False)
    _num_failures: int = field(default=0, init=False)  # since the last good save
    _buffer: Tensor | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.newest_loss = self.state.newest_loss
        self._saved = self.state.step if self.has_own else None, self.state.is_scored
        position = self._position()
        if self.world.is_main:
            self._history = History(Path(self.config.folder), resume_step=self.state.step)
            self._history.start(self.state.step, position, self.state.skipped_ranges, self.identity.config_yaml)

    @property
    def _folder(self) -> Path:
        return Path(self.config.folder) / CHECKPOINTS

    @property
    def saved_step(self) -> int | None:
        """The newest step that was saved or is being saved; None if there is none."""
        return self._saved[0]

    @property
    def can_rewind(self) -> bool:
        """Whether there is a checkpoint to rewind to."""
        return self.saved_step is not None or self.has_parents

    @property
    def is_writing(self) -> bool:
        """Whether this rank is still writing its shard. Communicates with no other rank."""
        save = self._current
        return save is not None and save.writer is not None and save.writer.is_alive()

    @property
    def in_flight(self) -> bool:
        """Whether a save has begun and is not committed; the same on all ranks."""
        return self._current is not None

    def note_position(self) -> dict[str, Any]:
        """Write down where the stream stands, before a save or where a phase begins; returns that."""
        position = self._position()
        if self._history is not None:
            self._history.position(self.state.step, position)
        return position

    def begin(self) -> float:
        """Save this step, in the background if possible; returns the seconds that training stood still.

        It is not saved while the newest loss or a weight is not finite; `is_overdue` says so.

        Raises:
            TrainingError: too many saves failed in a row.
        """
        return self._save(wait=False, is_last=False)

    def save_for_good(self, *, is_finished: bool) -> None:
        """Save this step before the run ends, with several attempts if necessary.

        Raises:
            TrainingError: all attempts failed; or the run is finished, and its weights or its last loss, in training or
                validation, are not finite. With finite weights it is saved even so, and the state has that loss.
        """
        if not self.state.step:
            return
        self._save(wait=True, is_last=is_finished)
        while not (self.is_overdue or self._is_saved):
            time.sleep(RETRY_SECONDS)
            self._save(wait=True, is_last=is_finished)
        problem = "a weight is not finite" if self.is_overdue else self.state.problem()
        if is_finished and problem is not None:
            raise TrainingError(f"step {self.state.step}: {problem} at the end of the run; {self._standing()}")

    def commit(self) -> float:
        """Wait for the save in flight to be written, if there is one, and commit it; returns the seconds that it took.

        Raises:
            TrainingError: too many saves failed in a row.
        """
        save, begin = self._current, time.monotonic()
        if save is None:
            return 0.0
        with self.activities("save", step=self.state.step):
            if save.writer is not None:
                save.writer.join()
            self._current = None
            problem = self._conclude(save)
        self._num_failures = 0 if problem is None else self._num_failures + 1
        now = time.monotonic()
        self.event(
            save.step,
            {
                "event": "checkpoint",
                "succeeded": problem is None,
                "problem": problem,
                "seconds": round(now - save.begin, 3),
                "stopped_seconds": round(save.stopped_seconds + now - begin, 3),
                "checkpoint_failures": self._num_failures,
            },
        )
        if problem is not None:
            self._saved = save.before
        if self._num_failures >= self.config.checkpoint.max_failures:
            raise TrainingError(
                f"{self._num_failures} saves in a row failed, the last of them: {problem}; at step {self.state.step}"
            )
        return now - begin

    @property
    def _is_saved(self) -> bool:
        """Whether this step is saved, or being saved, with its scores if it has any."""
        return self._saved == (self.state.step, self.state.is_scored)

    def _save(self, *, wait: bool, is_last: bool) -> float:
        begin = time.monotonic()
        if wait or not self._is_saved:
            self.commit()
        if self._is_saved:
            return time.monotonic() - begin
        problem = self._problem(is_last=is_last)
        self.is_overdue = problem is not None
        if problem is not None:
            log.warning("step %d is not saved: %s; %s", self.state.step, problem, self._standing())
            return time.monotonic() - begin
        with self.activities("save", step=self.state.step):
            self._current = self._begun(begin, at_once=wait)
        self._current.stopped_seconds = time.monotonic() - begin
        if self._current.writer is None:
            self.commit()
        return time.monotonic() - begin

    def _problem(self, *, is_last: bool) -> str | None:
        """Why these weights are not to be saved; the same on all ranks. None if they are."""
        if not (is_last or math.isfinite(self.newest_loss)):
            return "the newest loss is not finite"
        finite = [torch.isfinite(part).all() for _, _, part in self.engine.own_weights()]
        is_finite = not finite or bool(torch.stack(finite).all())
        return "a weight is not finite" if self.world.sum([not is_finite]) != [0] else None

    def _standing(self) -> str:
        step = self.saved_step
        return "there is no checkpoint" if step is None else f"the checkpoint of step {step} stands"

    def _position(self) -> dict[str, Any]:
        """The position of all lanes in the data, from those of every rank's."""
        states = map(StreamState.from_json, self.world.gather(self.stream().to_json()))
        return StreamState.merge(list(states)).to_json()

    def _begun(self, begin: float, *, at_once: bool) -> _Save:
        """A save whose shards are being written in the background, or are written."""
        state, engine = self.state, self.engine
        state.newest_loss, state.fp16 = self.newest_loss, engine.fp16_state()
        save = _Save(
            step=state.step,
            temporary=self._folder / f"{TEMPORARY}{step_folder(state.step)}",
            state={"trainer": state.to_json(), "stream": self.note_position()},
            scores=state.signed_scores(),
            # weights that updates have been skipped with may be wrecked, though finite: the older ones stay
            replaces=not state.skipped_in_a_row and math.isfinite(self.newest_loss),
            before=self._saved,
            begin=begin,
        )
        self._saved = state.step, state.is_scored
        sizes = engine.parameter_sizes()
        own = set(format_.divide(sizes, self.world.size)[self.world.rank])
        save.problem = attempt(self.world, partial(self._make_room, save.temporary, FLOAT_BYTES * self._count(sizes)))
        if save.problem is not None:
            return save
        tensors = tensors_of(engine.parameter_states(), own)
        if self.config.checkpoint.asynchronous and not at_once and self._has_memory(self._count(own)):
            copied = list(self._copied(tensors))
            wait(engine.device)
            save.writer = threading.Thread(target=self._write, args=(save, copied), daemon=True)
            save.writer.start()
        else:
            self._write(save, tensors)
        return save

    def _count(self, names: Iterable[str]) -> int:
        """Numbers that are saved of parameters: weights, optimizer states and moving average."""
        sizes, moments = self.engine.parameter_sizes(), self.engine.moments
        kept = (math.prod(shape) for name in names for shape in moments[name].values())
        return (1 + self.engine.keeps_ema) * sum(sizes[name] for name in names) + sum(kept)

    def _make_room(self, temporary: Path, needed: int) -> None:
        """An empty folder to write in, on a disk with room for `size` bytes.

        Raises:
            OSError: there is none.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self._folder)
        disk = os.statvfs(self._folder)
        free, needed = disk.f_bavail * disk.f_frsize, needed + _SMALL_FILES_BYTES
        if disk.f_blocks and free < needed:  # some network file systems tell nothing
            raise OSError(f"{self._folder}: {free:,} bytes are free, a checkpoint needs {needed:,}")
        temporary.mkdir()

    def _has_memory(self, count: int) -> bool:
        """Whether every machine has host memory for the copies; it is taken once, for all saves.

        It is page-locked if there is a GPU, so that the copy runs at the bus's speed.
        """
        locked = not is_host(self.engine.device)
        needed = page_locked_bytes(FLOAT_BYTES * count) if locked else FLOAT_BYTES * count
        if self._buffer is not None and self._buffer.numel() != count:  # other parameters are trained
            self._buffer = None
        reports = (socket.gethostname(), needed if self._buffer is None else 0, available_memory())
        shortage = shortage_of(self.world.gather(reports))
        if shortage is None and self._buffer is None:
            try:
                self._buffer = torch.empty(count, pin_memory=locked)
            except (RuntimeError, MemoryError) as error:
                shortage = of_rank(self.world.rank, error)
        shortage = next(filter(None, self.world.gather(shortage)), None)
        if shortage is not None:
            self._buffer = None
            log.info("this save stops training: %s", shortage)
        return shortage is None

    def _copied(self, tensors: Iterable[Named]) -> Iterator[Named]:
        """The same tensors in the host's memory; the device may still be copying."""
        assert self._buffer is not None
        used = 0
        for kind, name, tensor in tensors:
            place = self._buffer[used : used + tensor.numel()].view(tensor.shape)
            yield kind, name, place.copy_(tensor, non_blocking=True)
            used += tensor.numel()

    def _write(self, save: _Save, tensors: Iterable[Named]) -> None:
        """Write this rank's files. An error of writing fails the save alone; one of gathering is raised."""
        problem, rank, size = None, self.world.rank, self.world.size
        save.problem = f"rank {rank}: its writer has died"  # unless it comes to the end
        for number, part in enumerate(format_.parts(tensors)):  # to the end: all ranks take part in gathering each
            try:
                if problem is None:
                    save.temporary.mkdir(exist_ok=True)  # rank 0 has, but this machine may not have seen it yet
                    save.records |= format_.write_part(save.temporary, part, number, rank=rank, world_size=size)
            except Exception as error:
                problem = of_rank(rank, error)
        save.problem = problem

    def _conclude(self, save: _Save) -> str | None:
        """Agree on the outcome of the shards, and publish them all or remove them all; returns the first problem."""
        answers = self.world.gather((save.records, save.problem))
        problem: str | None = next((problem for _, problem in answers if problem is not None), None)
        if problem is None:
            records = {name: record for shard, _ in answers for name, record in shard.items()}
            problem = attempt(self.world, partial(self._publish, save, records))
        if problem is not None:
            attempt(self.world, partial(remove_leftovers, self._folder))
            log.error("checkpoint of step %d failed, the older ones stand: %s", save.step, problem)
            return problem
        self.refused.discard(step_folder(save.step))
        return None

    def _publish(self, save: _Save, records: Mapping[str, format_.Record]) -> None:
        """The small files, the manifest, and the rename that makes it a checkpoint; then pointer and retention."""
        format_.complete(
            save.temporary,
            tensors=records,
            state=save.state,
            config_yaml=self.identity.config_yaml,
            tokenizer_files=self.identity.tokenizer_files,
            manifest={"step": save.step, "world_size": self.world.size, **self.identity.manifest},
        )
        publish(self._folder, save.temporary, save.step)
        try:
            sync_folder(self._folder)
            point_to(self._folder, step_folder(save.step))
            if save.replaces:
                retain(self._folder, save.scores, self.config.checkpoint, self.refused - {step_folder(save.step)})
        except (OSError, FileError) as error:
            log.warning("checkpoint of step %d is complete, but: %s", save.step, error)


def tensors_of(parameters: Iterable[ParameterState], own: Collection[str]) -> Iterator[Named]:
    """The tensors of this rank's parameters; the iteration goes through all, since all ranks gather each together."""
    for parameter in parameters:
        if parameter.name in own:
            yield "model", parameter.name, parameter.weight
            for key, moment in (parameter.moments or {}).items():
                yield "optimizer", f"{key}/{parameter.name}", moment
            if parameter.ema is not None:
                yield "ema", parameter.name, parameter.ema


def available_memory(root: Path = Path("/")) -> int:
    """Free bytes: the system's estimate, or what a control group (version 2) of this process leaves, if that is less.

    Args:
        root: where /proc and /sys are.
    """
    left: list[int] = [psutil.virtual_memory().available]
    with contextlib.suppress(OSError):
        own = (
            root
            / "sys/fs/cgroup"
            / (root / "proc/self/cgroup").read_text(encoding="utf-8").rpartition("0::/")[2].strip()
        )
        for group in (own, *own.parents):  # a limit holds for all groups below it
            with contextlib.suppress(OSError, ValueError):  # there is none; in a container some are not visible
                limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
                # the kernel reclaims inactive cached files when memory is needed
                cached = re.search(r"^inactive_file (\d+)", (group / "memory.stat").read_text(), re.MULTILINE)
                left.append(max(limit - used + int(cached[1] if cached else 0), 0))
    return min(left)


def shortage_of(reports: Sequence[tuple[str, int, int]]) -> str | None:
    """A message that names a machine without enough memory for copies of its ranks' shards; None if all have enough.

    Args:
        reports: for every rank: the machine, bytes needed, bytes free on the machine.
    """
    needed = Counter[str]()
    for host, amount, _ in reports:
        needed[host] += amount
    for host, _, left in reports:
        if needed[host] > COPIES_FRACTION * left:
            return f"{host} has {left:,} bytes of memory left, copies of its ranks' shards take {needed[host]:,}"
    return None
