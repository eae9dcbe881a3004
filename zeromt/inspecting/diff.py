"""`zeromt diff`: the first update at which two runs diverge, and what differs there."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from configs import UserError
from configs.process.files import naming
from configs.process.text import visible
from data_pipeline.stream.batch import MicroBatch
from trainer.changes import changed_fields
from trainer.runs.history.updates import UpdatesFile, first_where
from trainer.runs.layout import METRICS_FILE, UPDATES_FILE
from trainer.runs.metrics_file import Line, number, read_lines, whole
from zeromt.inspecting.found import FoundUpdate, Standing, find_update, standing_before

MOST_PAIRS = 8
"""Maximum number of differing pairs to show."""
ROUNDING = 1e-5
"""Relative difference within which losses of the same update on other ranks, devices or versions lie."""

Kind = Literal["configuration", "data", "versions", "order", "loss"]


@dataclass(kw_only=True, slots=True, frozen=True)
class Parting:
    """The point at which two runs diverge."""

    first: int
    last: int
    """The update, or the first and last update of its log interval."""
    losses: tuple[float, float]
    """Loss per target token of the update or interval, in the first and the second run."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Compared:
    """Two runs, update by update."""

    num_updates: tuple[int, int]
    begin: int
    """The first update that both know."""
    pairs: Parting | None
    """Where their pairs diverge; likewise their losses."""
    losses: Parting | None
    how: str
    """Which files were compared, and how much of them was read."""

    @property
    def first(self) -> Parting | None:
        """The earlier of the two divergences."""
        partings = [one for one in (self.pairs, self.losses) if one is not None]
        return min(partings, key=lambda one: one.last) if partings else None


def run(*, run: str, other: str) -> int:
    """Print where two runs diverge and what differs there; returns 0 if they do not, else 1.

    Raises:
        UserError: the runs have no update in common.
    """
    with naming("RUN_A"):
        first = Path(run)
    with naming("RUN_B"):
        second = Path(other)
    compared = compare_files(first, second) or compare_logs(first, second)
    for letter, path, count in zip("AB", (first, second), compared.num_updates, strict=True):
        print(f"{letter}  {visible(str(path))}: {count:,} updates")
    parting = compared.first
    print(compared.how)
    if parting is None:
        print(f"the same from update {compared.begin:,} to {min(compared.num_updates):,}, the last that both have")
        return 0
    print("\n".join(_where(compared)))
    for kind, line in what_differs(first, second, compared, parting):
        print(f"  {kind:<14} {visible(line)}")
    return 1


def compare_files(first: Path, second: Path) -> Compared | None:
    """Compare by updates.bin, by bisection over the updates; None if the files have no update in common."""
    with contextlib.ExitStack() as stack:
        files = []
        for path in (first, second):
            try:
                files.append(UpdatesFile(path))
            except FileNotFoundError:
                return None
            stack.callback(files[-1].close)
        a, b = files
        last, begins = min(a.num_updates, b.num_updates), (a.first_known(), b.first_known())
        if begins[0] != begins[1] or begins[0] > last:  # the hash chains begin where the file begins
            return None

        def parting(name: str) -> Parting | None:
            def differs(step: int) -> bool:
                one, two = a.record(step), b.record(step)
                return one is not None and two is not None and getattr(one, name) != getattr(two, name)

            step = first_where(differs, begins[0], last)
            if step > last:
                return None
            one, two = a.record(step), b.record(step)
            assert one is not None
            assert two is not None
            return Parting(first=step, last=step, losses=(one.loss, two.loss))

        pairs, losses = parting("pairs"), parting("losses")
        read, size = a.bytes_read + b.bytes_read, 16 * (a.num_updates + b.num_updates + 2)
        how = f"compared by {UPDATES_FILE}: {read:,} of {size:,} bytes read"
        return Compared(
            num_updates=(a.num_updates, b.num_updates), begin=begins[0], pairs=pairs, losses=losses, how=how
        )


def compare_logs(first: Path, second: Path) -> Compared:
    """Compare by the log, using lines that are about the same updates in both runs.

    Raises:
        UserError: there are no such lines.
    """
    a, b = (_intervals(path) for path in (first, second))
    common = sorted(a.keys() & b.keys(), key=lambda window: window[1])
    if not common:
        raise UserError(
            f"RUN_A, RUN_B: no line of their {METRICS_FILE} is of the same updates, and {UPDATES_FILE} is not in both; "
            "nothing can be compared"
        )

    def parting(*keys: str) -> Parting | None:
        for window in common:
            if any(a[window].get(key) != b[window].get(key) for key in keys):
                losses = number(a[window], "loss"), number(b[window], "loss")
                return Parting(first=window[0], last=window[1], losses=losses)
        return None

    return Compared(
        num_updates=(max(last for _, last in a), max(last for _, last in b)),
        begin=common[0][0],
        pairs=parting("pairs_digest"),
        losses=parting("loss"),
        how=f"compared by {METRICS_FILE}, in {len(common):,} lines of the same updates: {UPDATES_FILE} is not in both",
    )


def _intervals(run: Path) -> dict[tuple[int, int], Line]:
    """Training lines by the first and last update of their interval."""
    intervals = {}
    for line in read_lines(run / METRICS_FILE, having='"train"'):
        step, updates = whole(line.get("step")), whole(line.get("updates"))
        if line.get("kind") == "train" and step is not None and updates:
            intervals[step - updates + 1, step] = line
    return intervals


def _where(compared: Compared) -> Iterator[str]:
    for what, parting in (("pairs", compared.pairs), ("losses", compared.losses)):
        if parting is None:
            yield f"{what}: the same throughout"
            continue
        is_one = parting.first == parting.last
        where = f"update {parting.first:,}" if is_one else f"updates {parting.first:,} to {parting.last:,}"
        yield f"{what}: part at {where} (loss {parting.losses[0]:.7f} in A, {parting.losses[1]:.7f} in B)"


def what_differs(first: Path, second: Path, compared: Compared, parting: Parting) -> Iterator[tuple[Kind, str]]:
    """What differs in how the update was made where two runs diverge, likeliest causes first."""
    standings = []
    for path in (first, second):
        try:
            standings.append(standing_before(path, parting.last))
        except UserError as error:
            yield "configuration", f"cannot be compared: {error}"
            return
    causes = [*_of_configuration(*standings), *_of_data(first, second, parting, standings)]
    causes += _of_versions(*standings)
    yield from causes
    if compared.pairs is not None and compared.pairs == parting:
        left_out = [sorted(standing.skipped_ranges) for standing in standings]
        if left_out[0] != left_out[1]:
            yield (
                "order",
                f"updates skipped after rewinds: {left_out[0]} in A, {left_out[1]} in B (epoch, first, last)",
            )
        elif not causes:
            yield (
                "order",
                "other pairs, and nothing else is known to differ: one was --reset, or made otherwise",
            )
    elif compared.losses is not None:
        one, two = parting.losses
        is_close = math.isclose(one, two, rel_tol=ROUNDING)
        size = f"{abs(one - two):.2g} apart" if math.isfinite(one - two) else f"{one} and {two}"
        why = "as of another sum's order (ranks, device, versions)" if is_close else "more than rounding"
        yield "loss", f"of the same pairs, {size}: {why}"


def _of_configuration(a: Standing, b: Standing) -> Iterator[tuple[Kind, str]]:
    for key, (one, two) in changed_fields(a.config, b.config).items():
        yield "configuration", f"{key}: {one} in A, {two} in B"


def _of_versions(a: Standing, b: Standing) -> Iterator[tuple[Kind, str]]:
    keys = ("precision", "world_size")
    made = [{**s.made_with.get("versions", {}), **{key: s.made_with.get(key) for key in keys}} for s in (a, b)]
    for key in {**made[0], **made[1]}:
        one, two = (versions.get(key) for versions in made)
        if one != two and None not in (one, two):
            yield "versions", f"{key.replace('world_size', 'ranks')}: {one} in A, {two} in B"


def _of_data(first: Path, second: Path, parting: Parting, standings: Sequence[Standing]) -> Iterator[tuple[Kind, str]]:
    """Datasets whose hashes differ, and pairs of the update that differ."""
    fingerprints = [_data_fingerprints(standing) for standing in standings]
    if fingerprints[0] == fingerprints[1]:
        return
    for index, (one, two) in enumerate(zip(*fingerprints, strict=False), start=1):
        if one != two:
            yield "data", f"dataset {index}: {one[:12]} in A, {two[:12]} in B"
    if len(fingerprints[0]) != len(fingerprints[1]):
        yield "data", f"{len(fingerprints[0])} datasets in A, {len(fingerprints[1])} in B"
    if parting.first != parting.last:
        return
    try:
        updates = [find_update(path, parting.first) for path in (first, second)]
    except UserError as error:
        yield "data", f"the pairs of the update cannot be shown: {error}"
        return
    yield from (("data", line) for line in _other_pairs(*updates))


def _data_fingerprints(standing: Standing) -> list[str]:
    fingerprints = standing.made_with.get("fingerprints", {}).get("data")
    return list(fingerprints if fingerprints is not None else (standing.stream or {}).get("fingerprints", []))


def _other_pairs(a: FoundUpdate, b: FoundUpdate) -> Iterator[str]:
    """The first few pairs that differ at the same place of the update."""
    ours, theirs = ({(m.lane, row): (m, row) for m in u.micro_batches for row in range(m.num_pairs)} for u in (a, b))
    different = [place for place in ours if place not in theirs or _ids(*ours[place]) != _ids(*theirs[place])]
    yield f"{len(different):,} of the {len(ours):,} pairs of update {a.step:,} are others"
    for place in different[:MOST_PAIRS]:
        texts = [_text(u, *pairs[place]) if place in pairs else "-" for u, pairs in ((a, ours), (b, theirs))]
        yield f"lane {place[0]}, row {place[1]}: {texts[0]} in A, {texts[1]} in B"


def _ids(micro_batch: MicroBatch, row: int) -> tuple[Any, ...]:
    sides = (micro_batch.source[row], micro_batch.target_output[row])
    return tuple(tuple(np.trim_zeros(side, "b").tolist()) for side in sides)


def _text(update: FoundUpdate, micro_batch: MicroBatch, row: int) -> str:
    tokenizer = update.datasets[0].tokenizer
    [source] = tokenizer.decode_source([micro_batch.source[row].tolist()])
    [target] = tokenizer.decode_target([micro_batch.target_output[row].tolist()])
    return f"pair {int(micro_batch.pair_ids[row])} {source!r} / {target!r}"
