"""Saving, finding and keeping checkpoints, all ranks together."""

import contextlib
import dataclasses
import logging
import os
import shutil
import socket
import threading
import time
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from configs import CheckpointSection
from configs.process.files.inside import sync_folder
from configs.process.gpus import page_locked_bytes
from trainer.checkpoint import format as format_
from trainer.checkpoint import retention
from trainer.checkpoint.format import Checkpoint, FileRecord
from trainer.checkpoint.newest import describe, find_newest, on_main, point_to
from trainer.checkpoint.shard import FLOAT_BYTES, HostCopy, Shard, num_elements, write_while_gathering
from trainer.engines.protocol import Engine
from trainer.ranks import host_memory
from trainer.ranks.device import is_host
from trainer.ranks.distributed import World
from trainer.runs import layout

log = logging.getLogger(__name__)

_SMALL_FILES_BYTES = 4 << 20
_CLOSE_SECONDS = 10


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class RunIdentity:
    """What every checkpoint of a run holds besides weights and state."""

    config_yaml: str
    tokenizer_files: Mapping[str, bytes]
    manifest: Mapping[str, Any]
    """Stage, precision, versions and fingerprints, for the manifest."""


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class SaveOutcome:
    """The outcome of a save; the same on all ranks except for the seconds."""

    step: int
    succeeded: bool
    problem: str | None
    """The first problem, with its rank; None if there was none."""
    seconds: float
    """Seconds from its beginning to its commit."""
    stopped_seconds: float
    """Seconds for which training stood still."""


@dataclasses.dataclass(kw_only=True, slots=True)
class _Save:
    """A save that has begun."""

    step: int
    temporary: Path
    state: bytes
    scores: Mapping[int, float]
    awaited: frozenset[int]
    replaces: bool
    begin: float
    stopped_seconds: float = 0.0
    records: dict[str, FileRecord] = dataclasses.field(default_factory=dict)
    problem: str | None = None
    writer: threading.Thread | None = None
    cancelled: threading.Event = dataclasses.field(default_factory=threading.Event)


class CheckpointManager:
    """Owns a run's `checkpoints/` folder. All ranks make the same calls, except `is_written` and `close`.

    A save is a two-phase commit. First every rank writes its shard into a `tmp-` folder and fsyncs it: at once, or in a
    thread from a copy in host memory, while training goes on. Then, in `commit`, the ranks agree that all shards are
    there, and rank 0 writes the manifest, renames the folder and moves the `latest` pointer. A failure before the
    rename leaves nothing.
    """

    def __init__(self, folder: Path, section: CheckpointSection, world: World, identity: RunIdentity) -> None:
        self._folder = folder
        self._section = section
        self._world = world
        self.identity = identity
        self._current: _Save | None = None
        self._outcome: SaveOutcome | None = None
        self._copy: HostCopy | None = None
        self._moments: Mapping[str, Any] = {}
        """Of an engine that the copy has room for."""
        self._refused: set[str] = set()
        self.num_failures = 0
        """Saves that failed since the last good one."""

    @property
    def in_flight(self) -> bool:
        """Whether a save has begun and is not committed; the same on all ranks."""
        return self._current is not None

    @property
    def is_written(self) -> bool:
        """Whether this rank has finished writing, or failed to; communicates with no other rank."""
        return self._current is None or self._current.writer is None or not self._current.writer.is_alive()

    def save(
        self,
        step: int,
        engine: Engine,
        state: Mapping[str, Any],
        *,
        scores: Mapping[int, float],
        wait: bool,
        awaited: frozenset[int] = frozenset(),
        replaces: bool = True,
    ) -> None:
        """Begin to write a step's checkpoint, after committing the one in flight. Disk errors are not raised.

        Args:
            step: the step of the current weights.
            engine: holds them.
            state: the trainer's, as JSON; it may change after this call.
            scores: by step, higher is better; they decide which checkpoints to keep.
            wait: write and commit before returning, as is also done if the section says so or a copy does not fit the
                memory.
            awaited: steps whose scores are still to come, as rank 0 knows them.
            replaces: whether older checkpoints may be deleted for it.
        """
        if self._current is not None:
            self.commit()
        begin = time.monotonic()
        save = self._current = _Save(
            step=step,
            temporary=self._folder / f"{layout.TEMPORARY}{layout.step_folder(step)}",
            state=format_.encode_state(state),
            scores=dict(scores),
            awaited=awaited,
            replaces=replaces,
            begin=begin,
        )
        self._outcome = None
        sizes = engine.parameter_sizes()
        kept = partial(num_elements, moments=engine.moments, has_ema=engine.keeps_ema)
        shard = Shard(sizes, self._world.rank, self._world.size, kept, has_ema=engine.keeps_ema)
        save.problem = on_main(self._world, lambda: self._make_room(save.temporary, kept(sizes)))
        if save.problem is not None:
            self._conclude(save)
        elif not wait and self._section.asynchronous and (copy := self._host_copy(engine, shard)) is not None:
            copy.fill(shard.of(engine.parameter_states()))
            save.writer = threading.Thread(
                target=_write_copy, args=(save, copy, shard, self._world.rank), name="checkpoint-writer", daemon=True
            )
            save.writer.start()
            save.stopped_seconds = time.monotonic() - begin
        else:
            parameters = shard.of(engine.parameter_states())
            shapes = engine.parameter_shapes()
            save.records, error = write_while_gathering(
                save.temporary, shard, shapes, parameters, moments=engine.moments
            )
            save.problem = None if error is None else describe(self._world.rank, error)
            self._conclude(save)

    def commit(self) -> SaveOutcome | None:
        """Wait for the save in flight to be written, commit it, and return its outcome.

        After a save that was committed at once, this returns its outcome, once. None if there is no outcome to report.
        """
        if self._current is not None:
            begin = time.monotonic()
            save = self._current
            if save.writer is not None:
                save.writer.join()
            self._conclude(save, stopped_since=begin)
        outcome, self._outcome = self._outcome, None
        return outcome

    def newest(self, passed_over: Collection[int] = ()) -> Checkpoint | None:
        """The newest whole checkpoint, every byte of it verified; None if there never was one.

        The log names each newer checkpoint that is broken, and a `latest` that pointed elsewhere. The ranks divide the
        hashing among them. The remains of an interrupted save are removed.

        Args:
            passed_over: steps that nothing can be trained from.

        Raises:
            CheckpointError: there are checkpoints, and none of them is whole; or there were, as `latest` says.
        """
        if self._current is not None:
            self.commit()
        checkpoint, self._refused = find_newest(self._folder, self._world, passed_over)
        return checkpoint

    def close(self) -> None:
        """Stop the thread and remove this rank's part of an uncommitted save; communicates with no other rank."""
        save, self._current = self._current, None
        if save is None:
            return
        save.cancelled.set()
        if save.writer is not None:
            save.writer.join(timeout=_CLOSE_SECONDS)
        shard = Shard({}, self._world.rank, self._world.size, lambda _: 0, has_ema=True)
        with contextlib.suppress(OSError):
            for name in shard.file_names.values():
                (save.temporary / name).unlink(missing_ok=True)
            save.temporary.rmdir()  # the last rank that leaves succeeds

    def _make_room(self, temporary: Path, num_elements: int) -> None:
        """An empty folder to write in, on a disk with room for the files.

        Raises:
            OSError: there is none.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        retention.remove_leftovers(self._folder)
        disk = os.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        needed = FLOAT_BYTES * num_elements + _SMALL_FILES_BYTES
        if disk.f_blocks and free < needed:  # some network file systems tell nothing
            raise OSError(f"{self._folder}: {free:,} bytes are free, a checkpoint needs {needed:,}")
        temporary.mkdir()

    def _host_copy(self, engine: Engine, shard: Shard) -> HostCopy | None:
        """Host memory for this rank's shard, or None on all ranks if any machine has too little."""
        if self._moments != engine.moments:  # other parameters are trained
            self._copy, self._moments = None, engine.moments
        if self._copy is None:
            needed = FLOAT_BYTES * shard.num_elements
            if not is_host(engine.device):
                needed = page_locked_bytes(needed)
            reports = self._world.gather((socket.gethostname(), needed, host_memory.available()))
            if (shortage := host_memory.shortage(reports)) is None:
                try:
                    self._copy = HostCopy(shard.num_elements, engine.device)
                except (RuntimeError, MemoryError) as error:
                    shortage = describe(self._world.rank, error)
            shortages = [s for s in self._world.gather(shortage) if s is not None]
            if shortages:
                self._copy = None
                log.info("this save stops training: %s", shortages[0])
        return self._copy

    def _conclude(self, save: _Save, *, stopped_since: float | None = None) -> None:
        """Agree on the outcome of the shards; publish them all or remove them all."""
        answers = self._world.gather((save.records, save.problem), FileRecord)
        problem: str | None = next((p for _, p in answers if p is not None), None)
        if problem is None:
            records = {name: record for shards, _ in answers for name, record in shards.items()}
            problem = on_main(self._world, lambda: self._publish(save, records))
        if problem is None:
            self.num_failures = 0
            self._refused.discard(layout.step_folder(save.step))
            if trouble := on_main(self._world, lambda: self._after_publishing(save)):
                log.warning("checkpoint of step %d is complete, but: %s", save.step, trouble)
        else:
            self.num_failures += 1
            on_main(self._world, lambda: shutil.rmtree(save.temporary, ignore_errors=True))
            log.error("checkpoint of step %d failed, the older ones stand: %s", save.step, problem)
        now = time.monotonic()
        save.stopped_seconds += now - (save.begin if stopped_since is None else stopped_since)
        self._current = None
        self._outcome = SaveOutcome(
            step=save.step,
            succeeded=problem is None,
            problem=problem,
            seconds=now - save.begin,
            stopped_seconds=save.stopped_seconds,
        )

    def _publish(self, save: _Save, records: Mapping[str, FileRecord]) -> None:
        """The small files, the manifest, and the rename that makes it a checkpoint."""
        format_.complete(
            save.temporary,
            tensors=records,
            state=save.state,
            config_yaml=self.identity.config_yaml.encode(),
            tokenizer_files=self.identity.tokenizer_files,
            manifest={"step": save.step, "world_size": self._world.size, **self.identity.manifest},
        )
        retention.publish(self._folder, save.temporary, save.step)

    def _after_publishing(self, save: _Save) -> None:
        sync_folder(self._folder)
        point_to(self._folder, layout.step_folder(save.step))
        if not save.replaces:
            return
        retention.retain(
            self._folder,
            save.scores,
            last=self._section.keep_last,
            best=self._section.keep_best,
            every=self._section.keep_every,
            refused=self._refused,
            awaited=save.awaited,
        )


def _write_copy(save: _Save, copy: HostCopy, shard: Shard, rank: int) -> None:
    """What the thread does."""
    try:
        save.records = copy.write(save.temporary, shard, save.cancelled)
    except BaseException as error:  # any error fails the save alone; training goes on
        save.problem = describe(rank, error)
