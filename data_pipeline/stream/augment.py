"""What becomes of a window's pairs: modifiers drawn for each pair, in the order of the list, by way of its text."""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import sentencepiece
from numpy.typing import NDArray
from sentencepiece import sentencepiece_model_pb2

from configs import StreamSection, UserError
from configs.components import Draws, MergingModifier, Modifier, SubwordModifier, TextModifier, make
from data_pipeline.order.randomness import GOLDEN, Purpose, mixed, random_bits, threshold
from data_pipeline.order.windows import Budget
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.batch import Ragged
from data_pipeline.tokenizer import UNK_ID, Side, Tokenizer, widest

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Bits = NDArray[np.uint64]
Rows = list[list[int]]
T = TypeVar("T")
Text = tuple[tuple[list[int], list[int]], tuple[str, str]]
"""The tags before source and target, and both sides' texts behind them."""

SIDES: tuple[Side, Side] = ("source", "target")
PAIRS_A_SEED = 1024
"""Consecutive pairs whose words SentencePiece cuts from one seed on."""
_DRAWS = np.uint64(0x8CB92BA72F3D8DD7)
_CONTROL = sentencepiece_model_pb2.ModelProto.SentencePiece.CONTROL
_MODEL_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_sampling = Lock()


@dataclass(frozen=True, slots=True)
class Augmented:
    """The pairs of a window as they are trained on."""

    source: Ragged
    target: Ragged
    is_changed: Flags
    """(pairs,)."""
    fell_back: Flags
    """(pairs,): a modifier was drawn, and the pair stayed plain: too long, or with characters that have no pieces."""

    @property
    def lengths(self) -> NDArray[np.uint16]:
        """(pairs, 2)."""
        return np.stack([self.source.lengths, self.target.lengths], axis=1).astype(np.uint16)


class Augmenter:
    """The modifiers of one dataset. A pair's text becomes a function of (seed, dataset, pass, pair), where two pairs
    are merged of the window too; how its words are cut depends on the window's pairs before it as well. Any thread may
    ask.
    """

    def __init__(
        self,
        modifiers: Sequence[tuple[int, Modifier]],
        tokenizer: Tokenizer,
        *,
        seed: int,
        dataset: int,
        longest: Sequence[int],
        budget: Budget,
    ) -> None:
        """See the class.

        Args:
            modifiers: each with its number in `stream.augment`.
            tokenizer: of the dataset.
            seed: the run's seed.
            dataset: number of the dataset in the mixture.
            longest: pieces of source and target that no augmented pair may have more of: the model has positions for
                those of the datasets' longest pairs.
            budget: of a micro-batch, which every augmented pair fits.

        Raises:
            UserError: the tokenizer cannot be used with a modifier.
        """
        self._modifiers = modifiers
        self._tokenizer = tokenizer
        self._longest, self._budget = np.array(longest), budget
        self._key = random_bits(1, seed, Purpose.AUGMENT, dataset)[0]
        self._subwords = [m for _, m in modifiers if isinstance(m, SubwordModifier)]
        protos = [tokenizer.proto(side) for side in SIDES]
        self._controls = [{n for n, piece in enumerate(proto.pieces) if piece.type == _CONTROL} for proto in protos]
        for number, modifier in modifiers:
            where = f"stream.augment.{number}: {modifier.kind}"
            if isinstance(modifier, TextModifier):
                _check_spelling(modifier, tokenizer, where)
            if isinstance(modifier, SubwordModifier):
                _check_models(modifier, tokenizer, where)

    def __call__(self, source: Ragged, target: Ragged, is_there: Flags, pairs: Integers, passes: Integers) -> Augmented:
        """Change a window's pairs.

        Args:
            source: rows of plain pieces.
            target: as many.
            is_there: (pairs,): whether a pair could be read.
            pairs: (pairs,): their numbers in the dataset, in ascending order.
            passes: (pairs,): each one's pass over the dataset.
        """
        with np.errstate(over="ignore"):
            by_pass = mixed(self._key + (passes.astype(np.uint64) + np.uint64(1)) * GOLDEN)
            keys = mixed(by_pass + (pairs.astype(np.uint64) + np.uint64(1)) * GOLDEN)
            seeds = mixed(by_pass + (pairs // PAIRS_A_SEED + 1).astype(np.uint64) * _DRAWS) >> np.uint64(33)
            drawn = [_is_drawn(keys, number, modifier) & is_there for number, modifier in self._modifiers]
            is_cut: Flags = np.zeros(len(pairs), dtype=bool)
            for (_, modifier), chosen in zip(self._modifiers, drawn, strict=True):
                is_cut |= chosen & isinstance(modifier, SubwordModifier)
            plain, texts = self._changed_texts(source, target, is_there, pairs, keys, drawn)
        fell_back: Flags = np.logical_or.reduce(drawn)
        is_changed: Flags = np.zeros(len(pairs), dtype=bool)
        fell_back[list(texts)] = False
        rows = np.array([row for row, text in texts.items() if is_cut[row] or text != plain[row]], dtype=np.int64)
        new = self._encoded(
            [texts[row] for row in rows.tolist()], np.where(is_cut, seeds | np.uint64(1), np.uint64(0))[rows]
        )
        fits = self._fits(new)
        fell_back[rows[~fits]] = True
        rows, fitting = rows[fits], [[row for row, fit in zip(side, fits, strict=True) if fit] for side in new]
        for place, row in enumerate(rows.tolist()):  # a tokenizer that folds case makes the plain pair of capitals
            both = fitting[0][place], fitting[1][place]
            is_changed[row] = both != (source[row].tolist(), target[row].tolist())
        sides = [_replaced(plain_rows, rows, side) for plain_rows, side in zip((source, target), fitting, strict=True)]
        return Augmented(sides[0], sides[1], is_changed, fell_back)

    def _changed_texts(
        self, source: Ragged, target: Ragged, is_there: Flags, pairs: Integers, keys: Bits, drawn: Sequence[Flags]
    ) -> tuple[dict[int, Text], dict[int, Text]]:
        """The plain texts of the rows that are drawn and of their neighbours, and what becomes of the former."""
        # The first row of the next other pair of the window, after the last the first.
        following = np.searchsorted(pairs, pairs, side="right") % max(len(pairs), 1)
        is_drawn: Flags = np.logical_or.reduce(drawn)
        is_needed = is_drawn.copy()
        for (_, modifier), chosen in zip(self._modifiers, drawn, strict=True):
            if isinstance(modifier, MergingModifier):
                is_needed[following[chosen]] = True
        plain = self._decoded(np.flatnonzero(is_needed & is_there).tolist(), source, target)
        texts = {row: plain[row] for row in np.flatnonzero(is_drawn).tolist() if row in plain}
        for (number, modifier), chosen in zip(self._modifiers, drawn, strict=True):
            states = mixed(keys + np.uint64(number + 1) * _DRAWS).tolist()
            for row in np.flatnonzero(chosen).tolist():
                other = int(following[row])
                if row not in texts:
                    continue
                if isinstance(modifier, TextModifier):
                    texts[row] = self._changed(modifier, texts[row], Draws(states[row]))
                elif isinstance(modifier, MergingModifier) and pairs[other] != pairs[row] and other in plain:
                    tags, pair = texts[row]
                    if plain[other][0] == plain[row][0]:  # else of another language
                        texts[row] = tags, modifier.merge(pair, plain[other][1], Draws(states[row]))
        return plain, texts

    def _changed(self, modifier: TextModifier, text: Text, draws: Draws) -> Text:
        """A pair after a modifier. A tag that it puts first goes to the tags, which later ones leave alone."""
        tags, pair = text
        source, target = modifier.change(*pair, draws)
        tag, source = self._tokenizer.cut_tag(source)
        return (tags if tag is None else ([*tags[0], tag], tags[1])), (source, target)

    def _decoded(self, rows: Sequence[int], source: Ragged, target: Ragged) -> dict[int, Text]:
        """The texts of some rows, by row. Rows are missing that hold an unknown piece, or whose text begins with what
        looks like a tag: encoding it again would make it one.
        """
        sources = {row: _split(source[row].tolist(), self._controls[0]) for row in rows}
        targets = {row: _split(target[row].tolist(), self._controls[1]) for row in rows}
        known = [row for row in rows if UNK_ID not in sources[row][1] and UNK_ID not in targets[row][1]]
        source_texts = self._tokenizer.decode_source([sources[row][1] for row in known])
        target_texts = self._tokenizer.decode_target([targets[row][1] for row in known])
        return {
            row: ((sources[row][0], targets[row][0]), pair)
            for row, pair in zip(known, zip(source_texts, target_texts, strict=True), strict=True)
            if self._tokenizer.cut_tag(pair[0])[0] is None
        }

    def _encoded(self, texts: Sequence[Text], seeds: NDArray[np.uint64]) -> list[Rows]:
        """The pieces of both sides, none where one is unknown.

        Args:
            texts: of the pairs.
            seeds: (pairs,): from which on SentencePiece samples the pieces; where it is 0 they are its plain ones.
        """
        sides: list[Rows] = [[[] for _ in texts], [[] for _ in texts]]
        for seed in np.unique(seeds).tolist():
            places = np.flatnonzero(seeds == seed).tolist()
            encode = partial(self._pieces, [texts[place][1] for place in places], is_sampled=seed > 0)
            for side, rows in enumerate(_seeded(seed, encode) if seed else encode()):
                for place, row in zip(places, rows, strict=True):
                    sides[side][place] = texts[place][0][side] + row if row and UNK_ID not in row else []
        return sides

    def _pieces(self, pairs: Sequence[tuple[str, str]], *, is_sampled: bool) -> tuple[Rows, Rows]:
        alpha = self._subwords[0].sampling_alpha() if is_sampled else None
        return (
            self._tokenizer.encode_source([source for source, _ in pairs], alpha=alpha),
            self._tokenizer.encode_target([target for _, target in pairs], alpha=alpha),
        )

    def _fits(self, sides: Sequence[Rows]) -> Flags:
        """(rows,): whether pairs have pieces on both sides, for which a micro-batch and the model have room."""
        most = np.iinfo(np.uint16).max
        counts = [[min(len(row), most) for row in side] for side in sides]
        lengths = np.array(counts, dtype=np.uint16).T
        fits: Flags = (lengths > 0).all(axis=1) & (lengths <= self._longest).all(axis=1) & self._budget.holds(lengths)
        return fits


def _seeded(seed: int, encode: Callable[[], T]) -> T:
    """What SentencePiece samples from a seed on: each thread has a generator, which begins at the seed of all."""

    def begin_and_encode() -> T:
        sentencepiece.set_random_generator_seed(seed)
        return encode()

    with _sampling, ThreadPoolExecutor(1) as thread:
        return thread.submit(begin_and_encode).result()


def _split(row: list[int], controls: set[int]) -> tuple[list[int], list[int]]:
    """The tags that a row begins with, and the rest."""
    count = sum(1 for _ in itertools.takewhile(controls.__contains__, row))
    return row[:count], row[count:]


def _replaced(rows: Ragged, numbers: Integers, new: Rows) -> Ragged:
    """Rows, some of them by others."""
    others = Ragged.of(new)
    starts, lengths = rows.starts.copy(), rows.lengths.copy()
    starts[numbers] = len(rows.pieces) + others.starts
    lengths[numbers] = others.lengths
    kind = np.result_type(rows.pieces.dtype, np.uint16)
    return Ragged(np.concatenate([rows.pieces, others.pieces.astype(kind)]), starts, lengths)


def _is_drawn(keys: Bits, number: int, modifier: Modifier) -> Flags:
    """(pairs,): whether the modifier takes each."""
    if modifier.probability >= 1:
        return np.ones(len(keys), dtype=bool)
    drawn: Flags = mixed(keys + np.uint64(number + 1) * GOLDEN) < threshold(modifier.probability)
    return drawn


def _check_spelling(modifier: TextModifier, tokenizer: Tokenizer, where: str) -> None:
    """Refuse a modifier that brings in what the tokenizer has no pieces for.

    Raises:
        UserError: naming the characters, or the tag.
    """
    encoders = (tokenizer.encode_source, tokenizer.encode_target)
    for side, texts, encode in zip(SIDES, modifier.brings_in(), encoders, strict=True):
        wanted = sorted(set(texts))
        missing = [a for a, row in zip(wanted, encode(wanted), strict=True) if not row or UNK_ID in row]
        if missing:
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            raise UserError(
                f"{where}: the {side} vocabulary has no pieces for {' '.join(missing[:5])}{more}; prepare the data "
                "with prepare.tokenizer.byte_fallback=true, or name other characters, or leave it out"
            )
    if tags := tokenizer.tags_that_are_text(modifier.brings_in()[0]):
        raise UserError(
            f"{where}: {min(tags)} is no piece of the tokenizer, whose tags are "
            f"{', '.join(tokenizer.tags) or 'none'}; prepare the data with it in prepare.tokenizer.tags"
        )


def _check_models(modifier: SubwordModifier, tokenizer: Tokenizer, where: str) -> None:
    """Refuse a tokenizer of another kind.

    Raises:
        UserError: naming its file.
    """
    for side in SIDES:
        kind = _MODEL_TYPES.get(tokenizer.proto(side).trainer_spec.model_type, "other")
        if kind != modifier.model_type:
            use = {"bpe": "use bpe_dropout", "unigram": "use unigram_sampling"}.get(kind, "leave it out")
            name = tokenizer.file_name(side)
            raise UserError(f"{where}: is for {modifier.model_type} tokenizers, and {name} is a {kind} one; {use}")


def make_augmenters(datasets: Sequence[Dataset], section: StreamSection, *, seed: int) -> list[Augmenter | None]:
    """The augmenter of each dataset; None where nothing is to be changed.

    Args:
        datasets: of the stream.
        section: its `augment`.
        seed: the run's seed.

    Raises:
        UserError: a dataset's tokenizer cannot be used with a modifier.
    """
    chosen = [modifiers_of(section, dataset, number) for number, dataset in enumerate(datasets)]
    if not any(chosen):
        return [None] * len(datasets)
    tokenizer = widest([dataset.tokenizer for dataset in datasets])
    longest = [max(dataset.longest(side) - 1 for dataset in datasets) for side in SIDES]
    augmenters: list[Augmenter | None] = []
    for number, (dataset, modifiers) in enumerate(zip(datasets, chosen, strict=True)):
        place = {"seed": seed, "dataset": number}
        own, budget = tokenizer or dataset.tokenizer, Budget.of(section)
        made = Augmenter(modifiers, own, longest=longest, budget=budget, **place) if modifiers else None
        augmenters.append(made)
    return augmenters


def settings_number(datasets: Sequence[Dataset], section: StreamSection) -> int | None:
    """A number of 63 bits for the modifiers of all datasets, and for SentencePiece's version where it samples; None
    where there are no modifiers."""
    chosen = [modifiers_of(section, dataset, number) for number, dataset in enumerate(datasets)]
    if not any(chosen):
        return None
    plain: list[Any] = [[[number, dataclasses.asdict(modifier)] for number, modifier in of_one] for of_one in chosen]
    if any(isinstance(modifier, SubwordModifier) for of_one in chosen for _, modifier in of_one):
        plain.append(sentencepiece.__version__)
    digest = hashlib.blake2b(json.dumps(plain, sort_keys=True).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def modifiers_of(section: StreamSection, dataset: Dataset, number: int) -> list[tuple[int, Modifier]]:
    """The modifiers of a dataset, each with its number in the list; a BPE-dropout that it was prepared with is last."""
    path = section.datasets[number].path if section.datasets else None
    modifiers = [
        (place, modifier)
        for place, modifier in enumerate(section.augment)
        if modifier.probability > 0 and (not modifier.datasets or path in modifier.datasets)
    ]
    dropout = dataset.index.recipe.get("settings", {}).get("tokenizer", {}).get("bpe_dropout", 0)
    if dropout and not any(isinstance(modifier, SubwordModifier) for _, modifier in modifiers):
        modifiers.append((len(section.augment), make("modifier", "bpe_dropout", dropout=float(dropout))))
    return modifiers
