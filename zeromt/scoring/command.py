"""`zeromt score`: the pairs of a dataset, judged by models; the numbers become scores next to its shards.

Log-probabilities are per token, EOS included, so that long pairs are not worse than short ones. Of models of both
directions the dual conditional cross-entropy (Junczys-Dowmunt, 2018, equation 1) is a number between 0 and 1: pairs of
which either direction is improbable are low, and those whose directions disagree.
"""

import contextlib
import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs import PrepareSection, UserError
from configs.languages import same_language
from configs.process.environment import restored_environment
from configs.process.files import disk_errors
from configs.process.files.inside import replacing
from configs.process.progress import Progress, say
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import write_score
from trainer.inference.loading import find_checkpoint
from trainer.inference.translation.languages import language_tags
from zeromt.translator.engine import Engine
from zeromt.translator.store import Store
from zeromt.translator.worker import Chunk, Options, TranslationSettings

LOG_PROB, REVERSE, DUAL = "log_prob", "reverse_log_prob", "dual"
BLOCKS = 4
"""Blocks of the dataset in a chunk, so that the chunks do not depend on the number of parts."""


@restored_environment()
def run(
    *,
    dataset: str,
    run: str,
    reverse: str | None,
    part: tuple[int, int] | None,
    merge: bool,
    jsonl: str | None,
    **how: Any,
) -> int:
    """Score a dataset or one part, or write the scores of all parts.

    What is scored lies in `DATASET.scoring/NAME` until then.

    Args:
        dataset: its folder.
        run: a run of the dataset's direction.
        reverse: one of the other direction.
        part: I and N; None for all.
        merge: score nothing: the parts are ready.
        jsonl: a file for all pairs with their scores, to prepare another dataset of.
        how: fields of `Options`: `raw_weights`, `precision`, `processes`.

    Raises:
        UserError: a run is of another direction, or the scores were begun with something else.
    """
    if part is not None and jsonl is not None:
        raise UserError("--jsonl: given with --part, which computes only some of the scores; give it to --merge")
    data = Dataset.load(dataset)
    root = data.folder.with_name(f"{data.folder.name}.scoring")
    stores: dict[str, Store] = {}
    made_by: dict[str, Any] = {"command": "score", "dataset": data.fingerprint}
    chunks = range(-(-len(data.blocks) // BLOCKS))
    number, of = part or (1, 1)
    for name, judge in {LOG_PROB: run, REVERSE: reverse}.items():
        if judge is not None:
            engine = Engine(Options(run=judge, **how), [find_checkpoint(Path(judge))])
            _check_direction(engine.config.prepare, data, name)
            made_by[name] = engine.identity
            stores[name] = Store(root / name, {"dataset": data.fingerprint, "engine": engine.identity}, "DATASET")
            if not merge and (missing := stores[name].missing(chunks[number - 1 :: of])):
                _judge(stores[name], engine, data, name, missing)
    if part is not None:
        say(f"{dataset}: part {part[0]} of {part[1]} is scored; --merge writes the scores of all parts")
        return 0
    for store in stores.values():
        store.must_be_complete(len(chunks))
    names = [*stores, *([DUAL] if len(stores) > 1 else [])]
    with disk_errors("DATASET", data.folder):
        for column, name in enumerate(names):
            parts = (_scores(stores, data, chunk)[:, column] for chunk in chunks)
            write_score(data.folder, name, made_by, data.num_pairs, parts)
    if jsonl is not None:
        with disk_errors("--jsonl", Path(jsonl)):
            _write_pairs(Path(jsonl), data, names, ((chunk, _scores(stores, data, chunk)) for chunk in chunks))
    say(f"{dataset}: {data.num_pairs:,} pairs have {' and '.join(names)}; see `zeromt inspect {dataset}`")
    shutil.rmtree(root)
    return 0


def _judge(store: Store, engine: Engine, data: Dataset, name: str, missing: Sequence[int]) -> None:
    """Score some chunks by log-probabilities per token; NaN for a pair that is longer than the model holds."""
    prepare, languages = engine.config.prepare, [data.index.source_language, data.index.target_language]
    if name == REVERSE:
        languages.reverse()
    tags = None
    if prepare.tag_both_sides:
        tags = language_tags(prepare, engine.tokenizer, source=languages[0], target=languages[1])
    settings = TranslationSettings(section=engine.section, tags=tags)

    def pairs() -> Iterator[Chunk]:
        for number in missing:
            sources, targets = _texts(data, number)
            sources, targets = (targets, sources) if name == REVERSE else (sources, targets)
            yield Chunk(sources=sources, targets=targets)

    with contextlib.ExitStack() as stack:
        engine.start(stack)
        progress = stack.enter_context(Progress(f"scoring {name}", sum(_num_pairs(data, chunk) for chunk in missing)))
        for number, translations in zip(missing, engine.translate(pairs(), settings, progress.advance), strict=True):
            store.write(number, [one.log_prob / (len(one.ids) + 1) for [one] in translations])


def _blocks(data: Dataset, chunk: int) -> range:
    return range(chunk * BLOCKS, min((chunk + 1) * BLOCKS, len(data.blocks)))


def _num_pairs(data: Dataset, chunk: int) -> int:
    blocks = _blocks(data, chunk)
    return int(data.blocks["pairs"][blocks.start : blocks.stop].sum())


def _texts(data: Dataset, chunk: int) -> tuple[list[str], list[str]]:
    """Sources and targets of a chunk, as the tokenizer spells them; sources with their tag, if they have one."""
    tokenizer, tags = data.tokenizer, int(data.tag_both_sides)
    sources: list[str] = []
    targets: list[str] = []
    for block in map(data.read_block, _blocks(data, chunk)):
        ends = np.cumsum(block.lengths, axis=0, dtype=np.int64)[:-1]
        rows = [np.split(side, ends[:, at]) for at, side in enumerate((block.source, block.target))]
        sources += tokenizer.decode_source([row[tags:].tolist() for row in rows[0]])
        targets += tokenizer.decode_target([row.tolist() for row in rows[1]])  # which leaves tags out
    return sources, targets


def _scores(stores: Mapping[str, Store], data: Dataset, chunk: int) -> NDArray[np.float32]:
    """(pairs of a chunk, scores), in the order of the names."""
    pairs = _num_pairs(data, chunk)
    columns = [np.asarray(store.read(chunk, pairs), dtype=np.float32) for store in stores.values()]
    return np.stack([*columns, *([dual(*columns)] if len(columns) > 1 else [])], axis=1)


def _write_pairs(
    path: Path, data: Dataset, names: Sequence[str], chunks: Iterator[tuple[int, NDArray[np.float32]]]
) -> None:
    """Write a line of JSON for each pair: its sides, without the dataset's tag, and its scores."""
    tag = "" if (given := data.index.target_tag) is None else f"{given} "
    with replacing(path) as file:
        for chunk, scores in chunks:
            for source, target, row in zip(*_texts(data, chunk), scores.tolist(), strict=True):
                by_name = {name: None if math.isnan(one) else one for name, one in zip(names, row, strict=True)}
                pair = {"source": source.removeprefix(tag), "target": target, **by_name}
                file.write(f"{json.dumps(pair, ensure_ascii=False)}\n".encode())


def dual(log_prob: NDArray[np.float32], reverse: NDArray[np.float32]) -> NDArray[np.float32]:
    """exp(-(|H_A - H_B| + (H_A + H_B) / 2)), where H_A and H_B are cross-entropies per token, in nats.

    Args:
        log_prob: (pairs,) of the target given the source, per token.
        reverse: (pairs,) of the source given the target, per token.
    """
    scores: NDArray[np.float32] = np.exp(-(np.abs(log_prob - reverse) - (log_prob + reverse) / 2))
    return scores


def _check_direction(section: PrepareSection, data: Dataset, name: str) -> None:
    """Refuse a run of the wrong direction, whose numbers would look like those of bad pairs.

    Raises:
        UserError: naming both directions.
    """
    if section.tag_both_sides:  # of many languages: its tags say whether it has these
        return
    ends = (data.index.source_language, data.index.target_language)
    option, (source, target) = ("--run", ends) if name == LOG_PROB else ("--reverse", ends[::-1])
    own = section.source_language
    if same_language(own, [target]) and not same_language(own, [source]):
        raise UserError(
            f"{option}: a run of {own} -> {section.target_language}; give one of {source} -> {target}, or exchange "
            "--run and --reverse"
        )
