"""`zeromt replay`: compares an update's loss in the run with its loss in a fork that leaves some pairs out."""

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from configs import UserError, load_saved
from configs.components import unknown
from configs.process.files import naming
from configs.process.text import visible
from trainer.runs.history.updates import UpdatesFile
from trainer.runs.layout import CHECKPOINTS, CONFIG, METRICS_FILE, list_steps, step_of
from trainer.runs.metrics_file import number, read_lines
from trainer.stability.spikes import MIN_HISTORY, SpikeDetector
from zeromt.inspecting.cause import Data, find_cause, read_data, usual_loss
from zeromt.inspecting.forks import Forking, Leaves, Replayed, find_beginning, forks, train_fork
from zeromt.inspecting.found import check_made
from zeromt.inspecting.options import MAX_UPDATES

USUAL_UPDATES = 32
"""Number of updates before it whose median loss is taken as usual."""

Integers = NDArray[np.int64]


def run(
    *,
    run: str,
    update: int | None,
    num_updates: int,
    without_dataset: Sequence[str],
    without_pairs: str | None,
    blame: bool,
    spikes: int | None = None,
) -> int:
    """Print the losses of a fork next to the run's, or find the cause of a spike, or list spikes.

    Args:
        run: its folder.
        update: the update in question. The fork begins at the newest checkpoint before it. None lists spikes.
        num_updates: to print, from that update on.
        without_dataset: names of datasets to leave out.
        without_pairs: a file with the pairs to leave out: each line begins with a pair's number.
        blame: instead of these, search for what to leave out.
        spikes: the number of updates to list.

    Raises:
        UserError: the run has not made the update, has no checkpoint before it, or has no such data.
    """
    chosen = without_dataset or without_pairs is not None or num_updates > 1
    if update is None:
        if blame or chosen:
            raise UserError("--spikes: lists updates and replays none; give it alone, and the other options with --at")
        return list_spikes(Path(run), spikes or 1)
    if blame and chosen:
        raise UserError("--blame: finds what to leave out by itself; give it with --at alone")
    folder = Path(run)
    with naming("RUN"):
        check_made(folder, update)
        forking = find_beginning(folder, update)
        losses = recorded_losses(folder, max(1, update - USUAL_UPDATES), update + num_updates)
        usual = usual_loss(update, losses) if blame else None  # before anything is read or trained
        data = read_data(forking, update)
    if usual is not None:
        with forks(forking.standing.config) as world:
            find_cause(forking, world, data, update, usual)
        return 0
    leaves, what = _choose(data, without_dataset, without_pairs)
    with forks(forking.standing.config) as world:
        by_update = train_fork(forking, world, update + num_updates - 1 - forking.step, leaves)
    print(*_side_by_side(folder, forking, by_update, losses, what), sep="\n")
    return 0


def recorded_losses(run: Path, first: int, end: int) -> dict[int, float]:
    """The losses of updates from `first` up to `end`, as far as updates.bin or the log has them."""
    losses = {}
    for line in read_lines(run / METRICS_FILE, having='"train"'):
        step = line.get("step")
        if line.get("kind") == "train" and line.get("updates") == 1 and isinstance(step, int) and first <= step < end:
            losses[step] = number(line, "loss")
    try:
        file = UpdatesFile(run)
    except FileNotFoundError:
        return losses
    for step in range(first, min(end, file.num_updates + 1)):
        if step not in losses and (record := file.record(step)) is not None:
            losses[step] = record.loss
    file.close()
    return losses


def list_spikes(run: Path, number: int) -> int:
    """Print the updates whose loss is farthest above the median of those before them, the farthest first.

    Median and deviation are what the trainer goes by (`trainer.stability.spikes`), also where it does not act on them.

    Raises:
        UserError: the run has recorded too few losses, or has no configuration.
    """
    with naming("RUN"):
        stability = load_saved(run / CONFIG, any_version=True).stability
        losses = recorded_losses(run, 1, MAX_UPDATES)
    detector = SpikeDetector(stability.spike_score, stability.spike_window, [])
    found = {}
    for update, loss in sorted(losses.items()):
        if math.isfinite(loss) and (spike := detector.measure(loss)) is not None:
            found[update] = spike
        detector.observe(loss)
    if not found:
        raise UserError(
            f"RUN: {visible(str(run))} has recorded the losses of {len(losses)} updates; --spikes needs more than "
            f"{MIN_HISTORY}"
        )
    above = sorted((one for one in found.items() if one[1].excess > 0), key=lambda one: -one[1].excess)[:number]
    print(f"# {visible(str(run))}: {len(losses):,} losses; those farthest above the median of the ones before")
    print(f"# a spike has above {stability.spike_score:g} deviations, of {stability.spike_window} losses (stability)")
    print("#update\tloss\tmedian\texcess\tdeviations\tits pairs")
    place = visible(shlex.quote(str(run)))
    first = min((step_of(folder) or 0 for folder in list_steps(run / CHECKPOINTS)), default=MAX_UPDATES)
    for update, spike in above:
        figures = f"{spike.loss:.4f}\t{spike.median:.4f}\t{spike.excess:.4f}\t{spike.score:.1f}"
        print(f"{update}\t{figures}\tzeromt batch {place} {update}{' --loss' if first < update else ''}")
    if (after := next((update for update, _ in above if first < update), None)) is not None:
        print(f"# what is behind one: zeromt replay {place} --at {after} --blame")
    elif above:
        print("# what is behind one is found from a checkpoint before it, and none is kept: checkpoint.keep_every")
    return 0


def _choose(data: Data, datasets: Sequence[str], file: str | None) -> tuple[Leaves | None, str]:
    """What the options leave out, and a phrase for it.

    Raises:
        UserError: there is no such dataset, or the file contains no pair numbers.
    """
    names = list(data.datasets)
    for name in datasets:
        if name not in names:
            raise UserError(f"--without-dataset: {unknown(name, data.datasets, what='dataset of the run')}")
    numbers = [names.index(name) for name in datasets]
    pairs = np.empty(0, dtype=np.int64) if file is None else _read_pairs(Path(file), data)
    if not datasets and file is None:
        return None, "with nothing left out"
    said = [f"dataset {visible(name)}" for name in datasets] + ([] if file is None else [f"{len(pairs):,} pairs"])
    return lambda m: np.isin(m.pair_ids, pairs) | (m.dataset in numbers), f"without {', '.join(said)}"


def _read_pairs(path: Path, data: Data) -> Integers:
    """The numbers at the beginning of a file's lines; `#` lines, as `zeromt batch` writes them, are skipped."""
    count = sum(dataset.num_pairs for dataset in data.datasets.values())
    numbers = []
    with naming("--without-pairs"):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for row, line in enumerate(lines, start=1):
        words = line.split("#")[0].split()
        if words and not (words[0].isascii() and words[0].isdigit() and int(words[0]) < count):
            raise UserError(
                f"--without-pairs: {path}: line {row}: {words[0]!r:.40}; allowed is the number of a pair, below {count}"
            )
        numbers += [int(words[0])] if words else []
    if not numbers:
        raise UserError(f"--without-pairs: {path} has no numbers; allowed is the number of a pair first on each line")
    return np.unique(np.array(numbers, dtype=np.int64))


def _side_by_side(
    run: Path, forking: Forking, by_update: Mapping[int, Replayed], losses: Mapping[int, float], what: str
) -> Iterator[str]:
    last = max(by_update, default=forking.step)
    yield f"# {visible(str(run))} from {forking.checkpoint.folder.name}: updates {forking.step + 1} to {last} {what}"
    yield "#update\tloss\treplayed\tdifference\tpairs_left_out"
    for step, replayed in by_update.items():
        own, other = (float(np.float32(loss)) for loss in (losses.get(step, math.nan), replayed.loss))  # as kept
        figures = [_figure(own), _figure(other), _figure(other - own, sign=True)]
        yield "\t".join([str(step), *figures, str(replayed.num_left_out)])


def _figure(value: float, *, sign: bool = False) -> str:
    return "-" if math.isnan(value) else f"{value:+.6f}" if sign else f"{value:.6f}"
