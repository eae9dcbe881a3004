"""The history of a run, as its first rank writes it at every start."""

from pathlib import Path

from data_pipeline.order.state import StreamState
from data_pipeline.stream.reader import StreamReader
from trainer.checkpoint.manager import RunIdentity
from trainer.checkpoint.state import TrainerState
from trainer.ranks.distributed import World
from trainer.runs.history.positions import History, HistoryFile, NoHistory


def open_history(
    folder: Path, identity: RunIdentity, reader: StreamReader, state: TrainerState, world: World
) -> History:
    """Note with what the run is started, and where its data stand. All ranks call it.

    Args:
        folder: the run's.
        identity: configuration, versions and fingerprints.
        reader: of this rank, put where the run goes on.
        state: likewise.
        world: the ranks.
    """
    stream = StreamState.merge(world.gather(reader.state()))
    if not world.is_main:
        return NoHistory()
    history = HistoryFile(folder, resume_step=state.step)
    keys = ("versions", "fingerprints", "precision", "zero_stage")
    started = {"config": identity.config_yaml, "world_size": world.size, **{k: identity.manifest[k] for k in keys}}
    history.start(state.step, stream.to_json(), state.skipped_ranges, started)
    return history
