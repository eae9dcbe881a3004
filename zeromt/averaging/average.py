"""`zeromt average`: makes a run of the mean of several checkpoints' weights (Vaswani et al., 2017, section 6.1)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from configs import UserError, load_saved
from configs.process.files import is_dir
from configs.process.streams import tell
from data_pipeline.tokenizer import Tokenizer
from trainer.checkpoint.format import SOURCES, Checkpoint, CheckpointError, StoredTensors, read_whole
from trainer.checkpoint.resume import architecture_differences
from trainer.checkpoint.state import TrainerState
from trainer.checkpoint.weights_only import write_run
from trainer.inference.loading import no_checkpoint, places_of, with_chosen_checkpoints
from trainer.runs.layout import CHECKPOINTS, CONFIG, list_steps, step_of
from trainer.runs.new_folder import check_new, new_folder


def run(*, run: str, last: int | None, best: int | None, output: str, replace: bool, raw_weights: bool) -> int:
    """Average the weights of a run's newest checkpoints, or of those with the best validation score.

    Args:
        run: its folder.
        last: how many of the newest; give this or `best`.
        best: how many of the best.
        output: a new folder.
        replace: rename what is there before.
        raw_weights: average the weights themselves, even if there are moving averages.

    Raises:
        UserError: there are too few whole checkpoints, or they differ in architecture or tokenizer.
    """
    check_new(Path(output), places_of([run]), replaces=replace)
    return with_chosen_checkpoints(
        lambda: choose(Path(run), last=last, best=best),
        lambda checkpoints: _write_average(checkpoints, Path(output), replaces=replace, raw_weights=raw_weights),
    )


def _write_average(checkpoints: Sequence[Checkpoint], output: Path, *, replaces: bool, raw_weights: bool) -> int:
    check_alike(checkpoints)
    newest = max(checkpoints, key=lambda c: int(c.manifest["step"]))
    kinds = [checkpoint.weights_kind(raw=raw_weights) for checkpoint in checkpoints]
    stored = [checkpoint.stored(kind) for checkpoint, kind in zip(checkpoints, kinds, strict=True)]
    config = load_saved(newest.folder / CONFIG)
    with new_folder(output, replaces=replaces) as folder:
        write_run(
            folder,
            output,
            config,
            Tokenizer.load(newest.folder),
            tensors=average(stored),
            state=_state(newest),
            data_fingerprints=newest.manifest["fingerprints"]["data"],
            sources=newest.manifest.get(SOURCES, []),
            origin={"command": "average", "checkpoints": [str(c.folder) for c in checkpoints], "weights": kinds},
        )
    steps = ", ".join(str(c.manifest["step"]) for c in checkpoints)
    print(f"average of {len(checkpoints)} checkpoints (steps {steps}): {output}")
    return 0


def choose(folder: Path, *, last: int | None, best: int | None) -> list[Checkpoint]:
    """The newest whole checkpoints of a run, or those of the best validation score; every byte verified.

    A broken one is named on standard error and does not count.

    Raises:
        UserError: the folder is not a run's, or has too few checkpoints.
    """
    steps = list_steps(folder / CHECKPOINTS)
    if not steps:
        raise no_checkpoint(folder)
    option, what, wanted = ("--last", "whole", last) if best is None else ("--best", "whole and scored", best)
    if best is not None:
        scores = _scores(steps)
        scored = [(scores[step], path) for path in steps if (step := step_of(path)) in scores]
        steps = [path for _, path in sorted(scored, key=lambda one: -one[0])]
    checkpoints: list[Checkpoint] = []
    for path in steps:
        try:
            checkpoints.append(read_whole(path))
        except CheckpointError as error:
            if not is_dir(path):  # a run that is training has deleted it, and saved a newer one before
                return choose(folder, last=last, best=best)
            tell(f"zeromt: not counted: {error}")
        if len(checkpoints) == wanted:
            return checkpoints
    raise UserError(
        f"{option}: {wanted}, and {len(checkpoints)} checkpoints of {folder} are {what}; "
        f"allowed is at most {len(checkpoints)}"
    )


def check_alike(checkpoints: Sequence[Checkpoint]) -> None:
    """Check that the checkpoints are of one model.

    Raises:
        UserError: naming what differs.
    """
    first = checkpoints[0]
    for other in checkpoints[1:]:
        differences = architecture_differences(first, load_saved(other.folder / CONFIG), name=first.folder.name)
        if other.manifest["fingerprints"]["tokenizer"] != first.manifest["fingerprints"]["tokenizer"]:
            differences.append("tokenizer: another one")
        if differences:
            raise UserError(f"{other.folder}: {'; '.join(differences)}; allowed are checkpoints of one model")


def average(stored: Sequence[StoredTensors]) -> Iterator[tuple[str, Tensor]]:
    """Name and mean of every tensor, one at a time; summed in fp64, returned in fp32."""
    for name in stored[0]:
        total = torch.zeros(stored[0].shape(name), dtype=torch.float64)
        for tensors in stored:
            total += tensors[name]
        yield name, (total / len(stored)).float()


def _state(newest: Checkpoint) -> TrainerState:
    """Step and figures of the newest checkpoint, without its scores, which are not the average's."""
    then = TrainerState.from_json(newest.state()["trainer"])
    return TrainerState(
        step=then.step, skipped_updates=then.skipped_updates, target_tokens=then.target_tokens, seconds=then.seconds
    )


def _scores(steps: Sequence[Path]) -> dict[int, float]:
    """Each step's score: every checkpoint holds the scores before it, so the newest whole one has them all."""
    for path in steps:
        try:
            return TrainerState.from_json(read_whole(path).state()["trainer"]).signed_scores()
        except CheckpointError:
            continue
    return {}
