"""`zeromt batch`: prints the pairs of an update as text, with their origin and loss."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from configs import RunConfig, UserError
from configs.process.files import naming
from configs.process.text import visible
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.pair_weights import WEIGHT_ONE
from trainer.datasets import dataset_names, tokenizer_of
from trainer.engines.batches import to_device, wrap
from trainer.inference.loading import TrainedModel, load_checkpoint
from trainer.ranks.process import tune_process
from trainer.runs.history.updates import UpdatesFile
from trainer.runs.layout import METRICS_FILE, UPDATES_FILE
from trainer.runs.metrics_file import Line, number, read_lines
from zeromt.inspecting.found import FoundUpdate, checkpoint_before, find_update


@dataclass(kw_only=True, slots=True, frozen=True)
class PairLoss:
    """Sums over the target tokens of a pair, in nats."""

    loss: float
    """The training loss, with label smoothing."""
    nll: float
    """Without."""


@torch.inference_mode()
def pair_losses(trained: TrainedModel, config: RunConfig, micro_batches: Sequence[MicroBatch]) -> list[list[PairLoss]]:
    """The losses of all pairs of each micro-batch, without dropout.

    A micro-batch goes through the model as in training; then the configured loss is computed row by row.

    Args:
        trained: the weights.
        config: names the training loss.
        micro_batches: of any update.
    """
    loss, losses = config.loss.build(), []
    for micro_batch in micro_batches:
        batch = to_device(micro_batch, trained.device)
        hidden_BTD = trained.model(batch.source, batch.target_input)
        rows = [
            trained.model.output(hidden_BTD[row : row + 1], batch.target_output[row : row + 1], loss)
            for row in range(micro_batch.num_pairs)
        ]
        sums = torch.tensor([[float(both[0]), float(both[1])] for both in rows], dtype=torch.float64).tolist()
        losses.append([PairLoss(loss=one, nll=two) for one, two in sums])
    return losses


@dataclass(kw_only=True, slots=True, frozen=True)
class Pair:
    """A pair of an update, in the order of the columns."""

    pair: int
    """As in pairs/rank-N.jsonl."""
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
        found = find_update(folder, update)
        recorded = Recorded.of(folder, found)
        recorded.check(update)
        checkpoint = checkpoint_before(folder, update) if loss else None
    losses: list[list[PairLoss]] | None = None
    if checkpoint is not None:
        trained = load_checkpoint(checkpoint, raw=True, precision=None)
        losses = pair_losses(trained, found.found_from.config, found.micro_batches)
    pairs = list(pairs_of(found, losses))
    if as_json:
        for pair in pairs:
            print(json.dumps(asdict(pair), ensure_ascii=False))
    else:
        under = None if checkpoint is None else checkpoint.folder.name
        print("\n".join([*_head(found, folder, recorded), *_of_losses(found, pairs, under, recorded), *_table(pairs)]))
    return 0


def pairs_of(update: FoundUpdate, losses: Sequence[Sequence[PairLoss]] | None) -> Iterator[Pair]:
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
                loss=None if losses is None else losses[order][row].loss,
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


@dataclass(kw_only=True, slots=True, frozen=True)
class Recorded:
    """What the run itself recorded of an update."""

    where: str | None
    """The file that has the record; None if there is none."""
    is_same: bool
    """Whether the recorded digest equals that of the pairs found."""
    loss: float
    """Loss per target token; NaN if it is not known."""

    @classmethod
    def of(cls, run: Path, update: FoundUpdate) -> "Recorded":
        """Read from the log line about this update alone, else from updates.bin."""
        digest = wrap(update.counts.pairs_digest)
        if (line := logged_update(run, update.step)) is not None:
            return cls(where=METRICS_FILE, is_same=line["pairs_digest"] == digest, loss=number(line, "loss"))
        try:
            file = UpdatesFile(run)
        except FileNotFoundError:
            return cls(where=None, is_same=True, loss=math.nan)
        record, is_same = file.record(update.step), file.is_of(update.step, digest)
        file.close()
        if record is None or is_same is None:
            return cls(where=None, is_same=True, loss=math.nan)
        return cls(where=UPDATES_FILE, is_same=is_same, loss=record.loss)

    def check(self, step: int) -> None:
        """Refuse pairs that differ from those that the run recorded.

        Raises:
            UserError: they differ.
        """
        if not self.is_same:
            raise UserError(
                f"UPDATE: {step:,}: its pairs cannot be found again: {self.where} has another digest of them; the run "
                "was made by another version of zeromt, or its configuration was changed by hand"
            )


def _head(update: FoundUpdate, run: Path, recorded: Recorded) -> list[str]:
    counts = update.counts
    checked = "not compared: the run kept none" if recorded.where is None else f"equal to that of {recorded.where}"
    return [
        f"# update {update.step} of {visible(str(run))}: epoch {update.epoch}, update {update.number} of it"
        + ("" if update.phase is None else f", phase {visible(update.phase)}"),
        f"# {counts.pairs} pairs, {counts.source_tokens} source and {counts.target_tokens} target tokens in "
        f"{counts.micro_batches} micro-batches; found from step {update.found_from.step}",
        f"# digest of the pairs {wrap(counts.pairs_digest)}: {checked}",
    ]


def _of_losses(found: FoundUpdate, pairs: Sequence[Pair], under: str | None, recorded: Recorded) -> Iterator[str]:
    if under is None:
        return
    weighed = math.fsum((pair.loss or 0.0) * (1.0 if pair.weight is None else pair.weight) for pair in pairs)
    if found.found_from.config.loss.needs_triples:  # whose loss is no sum over rows
        mean = weighed / max(found.counts.target_tokens, 1)
        yield f"# negative log-likelihood {mean:.7f} a token of either translation under {under}, without dropout"
        return
    normalize_by = found.found_from.config.training.normalize_by
    total = weighed / found.counts.divisor(normalize_by)
    unit = "a target token"
    if any(pair.weight is not None for pair in pairs):
        unit = "a weighed target token" if normalize_by == "tokens" else "a target token of weight 1"
    said = "" if recorded.where is None else f"; {recorded.where} has {recorded.loss:.7f}"
    yield f"# loss {total:.7f} {unit} under {under}, without dropout{said}"


def _table(pairs: Sequence[Pair]) -> Iterator[str]:
    """Tab-separated columns, the widest last."""
    wanted = [name for name in Pair.__dataclass_fields__ if any(getattr(pair, name) is not None for pair in pairs)]
    yield "#" + "\t".join(wanted)
    for pair in pairs:
        yield "\t".join(_cell(getattr(pair, name)) for name in wanted)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6f}" if isinstance(value, float) else visible(str(value))
