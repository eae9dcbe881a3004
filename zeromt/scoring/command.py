"""`zeromt score`: the pairs of a dataset, judged by models; the numbers become scores beside its shards.

Log-probabilities are per token, EOS included, so that long pairs are not worse than short ones. Of models of both
directions the dual conditional cross-entropy (Junczys-Dowmunt, 2018, equation 1) is a number between 0 and 1: pairs of
which either direction is improbable are low, and those of which the directions disagree.
"""

import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs import PrepareSection, UserError, load_saved
from configs.languages import same_language
from configs.process.environment import restored_environment
from configs.process.files import disk_errors
from configs.process.files.inside import replacing
from configs.process.progress import Progress, say
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.scores import write_score
from data_pipeline.tokenizer import Tokenizer
from trainer.checkpoint.format import Checkpoint
from trainer.inference.loading import find_checkpoint
from trainer.inference.translation.languages import language_tags
from trainer.ranks.process import tune_process
from trainer.runs.layout import CONFIG, model_identity
from zeromt.scoring.judging import Judging
from zeromt.translating.command import start_work
from zeromt.translating.worker import Answer, Chunk, Settings

LOG_PROB, REVERSE, DUAL = "log_prob", "reverse_log_prob", "dual"


@restored_environment()
def run(
    *,
    dataset: str,
    run: str,
    reverse: str | None,
    part: tuple[int, int] | None,
    merge: bool,
    jsonl: str | None,
    raw_weights: bool,
    precision: str | None,
    processes: int | None,
) -> int:
    """Score a dataset, or a part of it, or write the scores of all parts.

    Args:
        dataset: its folder.
        run: a run of the dataset's direction.
        reverse: one of the other direction.
        part: I and N; None for all.
        merge: score nothing: the parts are ready.
        jsonl: a file for all pairs with their scores, to prepare another dataset of.
        raw_weights: use the weights themselves, even if there are moving averages.
        precision: auto, fp32, bf16 or fp16; None for fp32 on a CPU and the run's on a GPU.
        processes: None for one on each GPU or core.

    Raises:
        UserError: a run is of another direction, or the scores were begun with something else.
    """
    if part is not None and jsonl is not None:
        raise UserError("--jsonl: given with --part, of which each has some scores; give it to --merge")
    tune_process()
    data = Dataset.load(dataset)
    judges = {LOG_PROB: find_checkpoint(Path(run))}
    if reverse is not None:
        judges[REVERSE] = find_checkpoint(Path(reverse))
    for name, checkpoint in judges.items():
        _check_direction(load_saved(checkpoint.folder / CONFIG).prepare, data, name)
    judging = Judging(
        data,
        {
            "dataset": data.fingerprint,
            **{name: model_identity(checkpoint.folder) for name, checkpoint in judges.items()},
            "raw_weights": raw_weights,
            "precision": precision,
        },
    )
    judging.begin()
    if not merge:
        number, of = part or (1, 1)
        for name, checkpoint in judges.items():
            settings = _settings(checkpoint, data, name, raw_weights=raw_weights, precision=precision)
            _judge(judging, name, settings, range(number - 1, len(judging.chunks), of), processes)
    if part is not None:
        say(f"{dataset}: part {part[0]} of {part[1]} is scored; --merge writes the scores of all parts")
        return 0
    judging.must_be_complete(judges)
    names = [*judges, *([DUAL] if reverse is not None else [])]
    made_by = {"command": "score", **judging.identity}
    with disk_errors("DATASET", data.folder):
        for number, name in enumerate(names):
            parts = (scores[:, number] for scores in _parts(judging, list(judges)))
            write_score(data.folder, name, made_by, data.num_pairs, parts)
    if jsonl is not None:
        with disk_errors("--jsonl", Path(jsonl)):
            _write_pairs(Path(jsonl), judging, list(judges), names)
    say(f"{dataset}: {data.num_pairs:,} pairs have {' and '.join(names)}; see `zeromt inspect {dataset}`")
    judging.remove()
    return 0


def _parts(judging: Judging, judges: Sequence[str]) -> Iterator[NDArray[np.float32]]:
    """(pairs of a chunk, scores), in the order of the names."""
    for number in range(len(judging.chunks)):
        columns = [judging.read(name, number) for name in judges]
        yield np.stack([*columns, *([dual(*columns)] if len(columns) > 1 else [])], axis=1)


def _write_pairs(path: Path, judging: Judging, judges: Sequence[str], names: Sequence[str]) -> None:
    """Write a line of JSON for each pair: its sides, without the dataset's tag, and its scores."""
    tag = "" if (given := judging.dataset.index.target_tag) is None else f"{given} "
    with replacing(path) as file:
        for number, scores in enumerate(_parts(judging, judges)):
            for source, target, row in zip(*judging.texts(number), scores.tolist(), strict=True):
                found = {name: None if math.isnan(one) else one for name, one in zip(names, row, strict=True)}
                pair = {"source": source.removeprefix(tag), "target": target, **found}
                file.write(f"{json.dumps(pair, ensure_ascii=False)}\n".encode())


def dual(log_prob: NDArray[np.float32], reverse: NDArray[np.float32]) -> NDArray[np.float32]:
    """exp(-(|H_A - H_B| + (H_A + H_B) / 2)), where H_A and H_B are cross-entropies per token, in nats.

    Args:
        log_prob: (pairs,) of the target given the source, per token.
        reverse: (pairs,) of the source given the target, per token.
    """
    found: NDArray[np.float32] = np.exp(-(np.abs(log_prob - reverse) - (log_prob + reverse) / 2))
    return found


def _judge(judging: Judging, name: str, settings: Settings, numbers: range, processes: int | None) -> None:
    """Score what is missing of some chunks."""
    missing = judging.missing(name, numbers)
    total, left = judging.num_pairs(numbers), judging.num_pairs(missing)
    if not missing:
        return
    with contextlib.ExitStack() as stack:
        work = start_work(stack, settings, processes)
        progress = stack.enter_context(Progress(f"scoring {name}", total, total - left))
        chunks = (_chunk(*judging.texts(number), is_reverse=name == REVERSE) for number in missing)
        for number, answer in zip(missing, work(chunks, progress.advance), strict=True):
            judging.write(name, number, _per_token(answer))


def _chunk(sources: list[str], targets: list[str], *, is_reverse: bool) -> Chunk:
    sources, targets = (targets, sources) if is_reverse else (sources, targets)
    return Chunk(first=0, sources=sources, targets=targets)


def _per_token(answer: Answer) -> list[float]:
    """The log-probability per token of each pair; NaN of one that is longer than the model holds."""
    scored = [line.translations[0] for line in answer.lines if line is not None]
    return [one.log_prob / (len(one.ids) + 1) for one in scored]


def _settings(
    checkpoint: Checkpoint, data: Dataset, name: str, *, raw_weights: bool, precision: str | None
) -> Settings:
    config, tokenizer = load_saved(checkpoint.folder / CONFIG), Tokenizer.load(checkpoint.folder)
    languages: dict[str, Any] = {}
    if config.prepare.tag_both_sides:
        ends = (data.source_language, data.target_language)
        languages = dict(zip(("source", "target"), ends if name == LOG_PROB else ends[::-1], strict=True))
    return Settings(
        checkpoints=[str(checkpoint.folder)],
        tags=language_tags(config.prepare, tokenizer, **languages),
        section=config.evaluation.search,
        raw_weights=raw_weights,
        precision=precision,
        n_best=1,
    )


def _check_direction(section: PrepareSection, data: Dataset, name: str) -> None:
    """Refuse a run of the wrong direction, whose numbers would look like those of bad pairs.

    Raises:
        UserError: naming both directions.
    """
    if section.tag_both_sides:  # of many languages: its tags say whether it has these
        return
    ends = (data.source_language, data.target_language)
    option, (source, target) = ("--run", ends) if name == LOG_PROB else ("--reverse", ends[::-1])
    own = section.source_language
    if same_language(own, [target]) and not same_language(own, [source]):
        raise UserError(
            f"{option}: a run of {own} -> {section.target_language}; give one of {source} -> {target}, or exchange "
            "--run and --reverse"
        )
