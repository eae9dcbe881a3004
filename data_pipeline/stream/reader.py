"""The canonical stream of one rank: the same updates at any world size, from any point on."""

import logging
from collections.abc import Sequence
from functools import partial

from configs import StreamSection, UserError
from data_pipeline.order.mixture import Mixture
from data_pipeline.order.state import LaneCursor, StreamState
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.lanes import Fetched, LaneStreamSpec, lane_updates, updates
from data_pipeline.stream.phase_data import PhaseData, StreamPhase, check_tokenizers
from data_pipeline.stream.prefetch import LoaderProcess, Prefetch

__all__ = ["LaneCursor", "StreamReader", "StreamState"]

log = logging.getLogger(__name__)

POSITION_SETTINGS = ("source_tokens", "target_tokens", "budget", "max_rows", "window_pairs", "length_multiple")


class StreamReader:
    """Hands out this rank's micro-batches, update after update.

    An update has K micro-batches, one of each lane; lane j belongs to rank j mod W. What a lane holds depends
    on the datasets, the section, the seed, the phase and the epoch alone.
    """

    def __init__(
        self,
        datasets: Sequence[tuple[Dataset, float | None]],
        section: StreamSection,
        *,
        seed: int,
        rank: int,
        world_size: int,
        phases: Sequence[StreamPhase] = (),
    ) -> None:
        """Plan the stream; nothing is read before the first update is asked for.

        Args:
            datasets: each with its weight, or all without one: proportions by size and `section.temperature`.
            section: budgets, lanes, windows.
            seed: the run's seed.
            rank: of this process.
            world_size: number of ranks.
            phases: of the run; each reads some of the datasets. By default, one that reads all.

        Raises:
            UserError: there is no dataset, they have different tokenizers, or a pair fits no micro-batch and such pairs
                are refused.
        """
        assert 0 <= rank < world_size
        if not datasets:
            raise UserError("stream.datasets: none is named; name one or more")
        self._datasets = [dataset for dataset, _ in datasets]
        check_tokenizers(self._datasets)
        self._seed = seed
        self._rank, self._world_size = rank, world_size
        self._lanes = range(rank, section.micro_batches, world_size)
        weights = [weight for _, weight in datasets]
        phases = phases or [StreamPhase(numbers=range(len(datasets)), weights=weights, section=section)]
        self._phases = [PhaseData.of(n, phase, self._datasets, seed=seed) for n, phase in enumerate(phases)]
        self._phase = self._phases[0]
        self.epoch = 0
        self.update = 0
        """Updates handed out within the epoch."""
        self._cursors = self._start([0] * len(self._phase.datasets))
        self._streams: list[Prefetch[Fetched]] = []
        self._dry: set[int] = set()
        """Numbers of the streams that have no more for this epoch."""

    @property
    def datasets(self) -> Sequence[Dataset]:
        """What is streamed, in all phases. Pairs are numbered across all datasets."""
        return self._datasets

    @property
    def phase(self) -> PhaseData:
        """The one that is read."""
        return self._phase

    @property
    def mixture(self) -> Mixture:
        """The datasets' proportions in the phase."""
        return self._phase.mixture

    def next_update(self) -> list[MicroBatch | None]:
        """This rank's micro-batches of the next update, ceil(K / W) of them.

        None stands where a lane is dry for this epoch or there is no such lane.

        Raises:
            DataError: a block that the update needs is corrupt.
        """
        if not self._streams:
            self._streams, self._dry = self._open_streams(), set()
        fetched = {n: stream.next() for n, stream in enumerate(self._streams) if n not in self._dry}
        slots: list[MicroBatch | None] = [None] * -(-self._phase.section.micro_batches // self._world_size)
        for number, part in fetched.items():
            self._cursors.update(part.cursors)
            if part.micro_batches is None:
                self._dry.add(number)
            else:
                for lane, micro_batch in part.micro_batches.items():
                    slots[lane // self._world_size] = self._phase.weighted(micro_batch)
        self.update += 1
        return slots

    def end_epoch(self) -> None:
        """Go on with the next epoch.

        To be called when no rank had a pair in the update just fetched; that update does not count.
        """
        if len(self._dry) < self._num_streams:
            raise RuntimeError("end_epoch() was called while this rank's lanes still hold pairs")
        self.epoch += 1
        self.update = 0
        self._cursors = {lane: self.mixture.next_epoch(cursors) for lane, cursors in self._cursors.items()}
        self._dry = set()

    def begin_phase(self, number: int, *, epoch: int) -> None:
        """Read another phase's data from their beginning; what was read ahead is thrown away.

        Args:
            number: of the phase, from 0.
            epoch: its first, in which no update was trained on: by that, its updates are told from all others.
        """
        self.close()
        self._phase = self._phases[number]
        self.epoch, self.update, self._dry = epoch, 0, set()
        self._cursors = self._start([epoch] * len(self._phase.datasets))

    def state(self) -> StreamState:
        """Where the stream stands after what was handed out; this rank's lanes only."""
        return StreamState(
            epoch=self.epoch,
            update=self.update,
            lanes=dict(self._cursors),
            seed=self._seed,
            micro_batches=self._phase.section.micro_batches,
            fingerprints=[dataset.fingerprint for dataset in self._phase.datasets],
            proportions=list(self.mixture.proportions),
            settings=self._settings(),
            phase=self._phase.number,
        )

    def restore(self, state: StreamState) -> None:
        """Go on where a merged state of all ranks, of any world size, left off.

        K, budgets and proportions may have changed if an epoch has just ended. In a mixture this restarts the current
        pass over every dataset.

        Raises:
            UserError: the state is of another seed or of other datasets, or, within an epoch, of another K or other
                budgets or proportions.
        """
        _must_equal("seed", state.seed, self._seed, "the run's own")
        if state.phase >= len(self._phases):
            raise UserError(f"phases: {len(self._phases)}, and the stream is in phase {state.phase + 1}")
        self._phase = self._phases[state.phase]
        self._check_fingerprints(state.fingerprints)
        if state.update > 0:
            self._check_settings(state)
        now = (self._phase.section.micro_batches, self._settings(), list(self.mixture.proportions))
        if now == (state.micro_batches, state.settings, state.proportions):
            missing = [n for n in self._lanes if len(state.lanes.get(n, ())) != len(self._phase.datasets)]
            if missing:
                raise UserError(f"stream state: lane {missing[0]} is missing; allowed is a state merged of all ranks")
            cursors = {lane: state.lanes[lane] for lane in self._lanes}
        else:
            passes = [state.epoch]
            if not self.mixture.is_single:
                passes = [
                    max(cursor.pass_ for cursor in column) + 1 for column in zip(*state.lanes.values(), strict=True)
                ]
                log.warning("the stream's settings have changed: each dataset of the mixture begins a new pass")
            cursors = self._start(passes)
        self.close()
        self.epoch, self.update, self._cursors, self._dry = state.epoch, state.update, cursors, set()

    def close(self) -> None:
        """End the threads and processes that read ahead. The next update starts others."""
        for stream in self._streams:
            stream.close()
        self._streams = []

    def _start(self, passes: Sequence[int]) -> dict[int, tuple[LaneCursor, ...]]:
        """This rank's cursors at the start of an epoch where every dataset begins a new pass."""
        return {lane: tuple(LaneCursor(pass_, 0, 0) for pass_ in passes) for lane in self._lanes}

    @property
    def _num_streams(self) -> int:
        return min(max(self._phase.section.workers, 1), len(self._lanes))

    def _open_streams(self) -> list[Prefetch[Fetched]]:
        """One for each worker, or one in this process, with the lanes dealt out in turns."""
        streams: list[Prefetch[Fetched]] = []
        phase, section = self._phase, self._phase.section
        places = [(dataset.location, dataset.fingerprint) for dataset in phase.datasets]
        bare = phase._replace(datasets=(), plans=[], pair_weights={})
        for number in range(self._num_streams):
            spec = LaneStreamSpec(
                phase=bare if section.workers else phase,
                epoch=self.epoch,
                update=self.update,
                cursors={lane: self._cursors[lane] for lane in self._lanes[number :: self._num_streams]},
            )
            if section.workers:
                loader = LoaderProcess(partial(lane_updates, spec, places))
                streams.append(Prefetch(loader, max(1, section.prefetch_updates)))
            else:
                streams.append(Prefetch(updates(spec), section.prefetch_updates))
        return streams

    def _settings(self) -> dict[str, int | str]:
        settings = {name: getattr(self._phase.section, name) for name in POSITION_SETTINGS}
        return settings if self._phase.augment is None else {**settings, "augment": self._phase.augment}

    def _check_fingerprints(self, allowed: list[str]) -> None:
        fingerprints = [dataset.fingerprint for dataset in self._phase.datasets]
        if fingerprints == allowed:
            return
        are = "are not the datasets" if len(fingerprints) > 1 else "is not the dataset"
        names = ", ".join(dataset.location for dataset in self._phase.datasets)
        raise UserError(
            f"stream.datasets: {names} {are} that the run was trained on: "
            f"fingerprint {', '.join(f[:12] for f in fingerprints)}; allowed is {', '.join(f[:12] for f in allowed)}"
        )

    def _check_settings(self, state: StreamState) -> None:
        """Refuse what would change the order within an epoch."""
        allowed = "that, until the epoch ends"
        _must_equal("stream.micro_batches", state.micro_batches, self._phase.section.micro_batches, allowed)
        if state.settings.get("augment") != self._phase.augment:
            raise UserError(
                f"stream.augment: is not what epoch {state.epoch} was begun with, and its windows are planned by it; "
                "allowed is that until the epoch ends, or --reset data"
            )
        for name, value in self._settings().items():
            _must_equal(f"stream.{name}", state.settings.get(name), value, allowed)
        _must_equal(
            "stream.datasets: proportions", _percent(state.proportions), _percent(self.mixture.proportions), allowed
        )


def _percent(proportions: Sequence[int]) -> str:
    return ", ".join(f"{100 * value / sum(proportions):.4f} %" for value in proportions)


def _must_equal(name: str, was: object, is_: object, allowed: str) -> None:
    if was != is_:
        raise UserError(f"{name}: {is_} where the stream was begun with {was}; allowed is {allowed}")
