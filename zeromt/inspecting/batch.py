"""`zeromt batch`: prints the pairs of an update as text, with their origin and loss."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from configs import UserError
from configs.process.files import naming
from configs.process.text import visible
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.phase_data import WEIGHT_ONE
from trainer.datasets import dataset_names, tokenizer_of
from trainer.engines.batches import wrap
from trainer.engines.layouts import to_device
from trainer.inference.loading import TrainedModel, load_checkpoint
from trainer.ranks.process import tune_process
from trainer.runs.layout import METRICS_FILE
from trainer.runs.metrics_file import Line, number, read_lines
from zeromt.inspecting.replay import ReplayedUpdate, checkpoint_before, find_update


@torch.inference_mode()
def pair_losses(trained: TrainedModel, update: ReplayedUpdate) -> list[list[float]]:
    """The losses of all pairs of each micro-batch, without dropout: sums over their target tokens, in nats.

    A micro-batch goes through the model as in training; then the configured loss is computed row by row.
    """
    loss, losses = update.config.loss.build(), []
    for micro_batch in update.micro_batches:
        batch = to_device(micro_batch, trained.device)
        hidden_BTD = trained.model(batch.source, batch.target_input)
        rows = [
            trained.model.output(hidden_BTD[row : row + 1], batch.target_output[row : row + 1], loss)[0]
            for row in range(micro_batch.num_pairs)
        ]
        losses.append(torch.stack(rows).double().tolist())
    return losses


@dataclass(kw_only=True, slots=True, frozen=True)
class Pair:
    """A pair of an update, in the order of the columns."""

    pair: int
    """Its row in the length tables of the datasets, one after the other."""
    dataset: str
    lane: int
    """Number of the micro-batch within the update."""
    row: int
    """Within the micro-batch."""
    block: int
    """Block of the dataset."""
    place: str | None
    """File and line in the raw corpus; None if preparation did not record it."""
    target_tokens: int
    weight: float | None
    """What its loss is multiplied by; None where its dataset has no `loss_weight`."""
    loss: float | None
    """Sum over the target tokens, in nats, not weighed."""
    source: str
    target: str


def run(*, run: str, update: int, loss: bool, as_json: bool) -> int:
    """Print the pairs of an update.

    Raises:
        UserError: the run has not made the update, its data or checkpoints are missing, or the pairs do not match the
            recorded digest.
    """
    tune_process()
    with naming("RUN"):
        folder = Path(run)
        replay = find_update(folder, update)
        recorded = logged_update(folder, update)
        check_digest(replay, recorded)
        checkpoint = checkpoint_before(folder, update) if loss else None
    losses: list[list[float]] | None = None
    if checkpoint is not None:
        trained = load_checkpoint(checkpoint, raw=True, precision=None)
        losses = pair_losses(trained, replay)
    pairs = list(pairs_of(replay, losses))
    if as_json:
        for pair in pairs:
            print(json.dumps(asdict(pair), ensure_ascii=False))
    else:
        under = None if checkpoint is None else checkpoint.folder.name
        print(
            "\n".join([*_head(replay, folder, recorded), *_of_losses(replay, pairs, under, recorded), *_table(pairs)])
        )
    return 0


def pairs_of(update: ReplayedUpdate, losses: Sequence[Sequence[float]] | None) -> Iterator[Pair]:
    """The pairs of an update, lane by lane.

    Args:
        update: which one.
        losses: of the rows of each micro-batch.
    """
    names = {dataset.location: name for name, dataset in dataset_names(update.datasets).items()}
    tokenizer = tokenizer_of(update.datasets)
    for order, micro_batch in enumerate(update.micro_batches):
        sources = tokenizer.decode_source(micro_batch.source.tolist())
        targets = tokenizer.decode_target(micro_batch.target_output.tolist())
        tokens = np.count_nonzero(micro_batch.target_output, axis=1).tolist()
        for row in range(micro_batch.num_pairs):
            dataset, local = update.place(micro_batch, row)
            yield Pair(
                pair=int(micro_batch.pair_ids[row]),
                dataset=names[dataset.location],
                lane=micro_batch.lane,
                row=row,
                block=block_of(dataset, local),
                place=dataset.place(local),
                target_tokens=tokens[row],
                weight=None if micro_batch.weights is None else int(micro_batch.weights[row]) / WEIGHT_ONE,
                loss=None if losses is None else losses[order][row],
                source=sources[row],
                target=targets[row],
            )


def block_of(dataset: Dataset, pair: int) -> int:
    """The block that contains a pair of a dataset."""
    return int(np.searchsorted(dataset.blocks["first_pair"], pair, side="right")) - 1


def logged_update(run: Path, step: int) -> Line | None:
    """The line of metrics.jsonl about this update alone; None if there is none."""
    for line in read_lines(run / METRICS_FILE, having='"train"'):
        if line.get("kind") == "train" and line.get("step") == step:
            return line if line.get("updates") == 1 and "pairs_digest" in line else None
    return None


def check_digest(update: ReplayedUpdate, recorded: Line | None) -> None:
    """Refuse pairs that differ from those that the run recorded.

    Args:
        update: as it was found.
        recorded: see `logged_update`.

    Raises:
        UserError: they differ.
    """
    if recorded is not None and recorded["pairs_digest"] != wrap(update.counts.pairs_digest):
        raise UserError(
            f"UPDATE: {update.step:,}: its pairs cannot be found again: {METRICS_FILE} has another digest; the "
            "run was made by another version of zeromt, or its configuration was changed by hand"
        )


def _head(update: ReplayedUpdate, run: Path, recorded: Line | None) -> list[str]:
    counts = update.counts
    checked = f"equal to that of {METRICS_FILE}" if recorded else "not compared: it has no line of its own in the log"
    return [
        f"# update {update.step} of {visible(str(run))}: update {update.number} of epoch {update.epoch}"
        + ("" if update.phase is None else f", phase {visible(update.phase)}"),
        f"# {counts.pairs} pairs, {counts.source_tokens} source and {counts.target_tokens} target tokens in "
        f"{counts.micro_batches} micro-batches; found from step {update.replayed_from}",
        f"# digest of the pairs {wrap(counts.pairs_digest)}: {checked}",
    ]


def _of_losses(
    update: ReplayedUpdate, pairs: Sequence[Pair], under: str | None, recorded: Line | None
) -> Iterator[str]:
    if under is None:
        return
    weighed = math.fsum((pair.loss or 0.0) * (1.0 if pair.weight is None else pair.weight) for pair in pairs)
    unit = "a target token" + " of weight 1" * any(pair.weight is not None for pair in pairs)
    said = "" if recorded is None else f"; {METRICS_FILE} has {number(recorded, 'loss'):.7f}"
    yield f"# loss {weighed / update.counts.divisor:.7f} {unit} under {under}, without dropout{said}"


def _table(pairs: Sequence[Pair]) -> Iterator[str]:
    """Tab-separated columns, the widest last."""
    wanted = [name for name in Pair.__dataclass_fields__ if any(getattr(pair, name) is not None for pair in pairs)]
    yield "#" + "\t".join(wanted)
    for pair in pairs:
        yield "\t".join(_cell(getattr(pair, name)) for name in wanted)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6f}" if isinstance(value, float) else visible(str(value))
