"""The history of a run, to which rank 0 adds an entry at every start."""

from pathlib import Path

from data_pipeline.order.state import LaneCursor, StreamState
from data_pipeline.stream.reader import StreamReader
from trainer.checkpoint.manager import RunIdentity
from trainer.checkpoint.state import TrainerState
from trainer.ranks.distributed import World
from trainer.runs.history.positions import History, HistoryFile, NoHistory


def open_history(
    folder: Path, identity: RunIdentity, reader: StreamReader, state: TrainerState, world: World
) -> History:
    """Record what the run is started with, and the position of its data stream. All ranks must call this.

    Args:
        folder: the run's folder.
        identity: the run's configuration, versions and fingerprints.
        reader: this rank's reader, already at the position that the run resumes from.
        state: the trainer's state at that position.
        world: the ranks.
    """
    stream = whole_stream(reader.state(), world)
    if not world.is_main:
        return NoHistory()
    history = HistoryFile(folder, resume_step=state.step)
    keys = ("versions", "fingerprints", "precision", "zero_stage")
    started = {"config": identity.config_yaml, "world_size": world.size, **{k: identity.manifest[k] for k in keys}}
    history.start(state.step, stream.to_json(), state.skipped_ranges, started)
    return history


def whole_stream(mine: StreamState, world: World) -> StreamState:
    """The position of all lanes; `mine` is that of this rank's. All ranks must call this."""
    return StreamState.merge(world.gather(mine, StreamState, LaneCursor))
