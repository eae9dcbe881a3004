"""What becomes of a window's pairs: modifiers drawn for each pair, in the order of the list, by way of its text."""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentencepiece import sentencepiece_model_pb2

from configs import StreamSection, UserError
from configs.components import Draws, MergingModifier, Modifier, SubwordModifier, TextModifier
from data_pipeline.order.randomness import GOLDEN, Purpose, mixed, random_bits, threshold
from data_pipeline.order.windows import Budget, Integers
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.batch import Ragged
from data_pipeline.tokenizer import SIDES, UNK_ID, WORD_BEGIN, Tokenizer

Flags = NDArray[np.bool_]
Bits = NDArray[np.uint64]
Pieces = tuple[list[int], list[int]]
"""Of source and target."""
Text = tuple[Pieces, tuple[str, str]]
"""The tags before source and target, and both sides' texts behind them."""

VARIANTS = 64
"""Segmentations of a word that are drawn from, so that it need not be cut again each time that it is read."""
MAX_KEPT = 1 << 20
"""Segmentations in memory."""
MAX_LETTERS = 64
"""A longer word stays plain, as the time grows with the square."""
_DRAWS = np.uint64(0x8CB92BA72F3D8DD7)
_PIECE = sentencepiece_model_pb2.ModelProto.SentencePiece
_MODEL_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}


class Augmenter:
    """The modifiers of one dataset. What becomes of a pair is a function of (seed, dataset, pass, pair), where two
    pairs are merged of the window's too. Any thread may ask.
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
        self._words: list[_Words] = []
        pieces = [tokenizer.proto(side).pieces for side in SIDES]
        self._controls = [{n for n, piece in enumerate(side) if piece.type == _PIECE.CONTROL} for side in pieces]
        for number, modifier in modifiers:
            where = f"stream.augment.{number}: {modifier.kind}"
            if isinstance(modifier, TextModifier):
                _check_spelling(modifier, tokenizer, where)
            if isinstance(modifier, SubwordModifier):
                _check_models(modifier, tokenizer, where)
                self._words = [_Words(modifier, side, int(self._key)) for side in pieces]

    def __call__(self, source: Ragged, target: Ragged, pairs: Integers, passes: Integers) -> tuple[Ragged, Ragged]:
        """Source and target of a window's pairs after the modifiers.

        A pair stays plain that would be too long, or have characters without pieces.

        Args:
            source: rows of plain pieces.
            target: as many.
            pairs: (pairs,): their numbers in the dataset, in ascending order.
            passes: (pairs,): each one's pass over the dataset.
        """
        with np.errstate(over="ignore"):
            by_pass = mixed(self._key + (passes.astype(np.uint64) + np.uint64(1)) * GOLDEN)
            keys = mixed(by_pass + (pairs.astype(np.uint64) + np.uint64(1)) * GOLDEN)
            drawn = [_is_drawn(keys, number, modifier) for number, modifier in self._modifiers]
            states = [mixed(keys + np.uint64(number + 1) * _DRAWS).tolist() for number, _ in self._modifiers]
        changed, fell_back = self._changed_texts(source, target, pairs, drawn, states)
        for (_, modifier), chosen, state in zip(self._modifiers, drawn, states, strict=True):
            if isinstance(modifier, SubwordModifier):
                for row in np.flatnonzero(chosen & ~fell_back).tolist():
                    draws, both = Draws(state[row]), changed.get(row) or (source[row].tolist(), target[row].tolist())
                    changed[row] = self._words[0].recut(both[0], draws), self._words[1].recut(both[1], draws)
        rows = np.array(list(changed), dtype=np.int64)
        rows = rows[self._fits(list(changed.values()))]
        new = [changed[row] for row in rows.tolist()]
        sources = _replaced(source, rows, [pieces for pieces, _ in new])
        return sources, _replaced(target, rows, [pieces for _, pieces in new])

    def _changed_texts(
        self, source: Ragged, target: Ragged, pairs: Integers, drawn: Sequence[Flags], states: Sequence[list[int]]
    ) -> tuple[dict[int, Pieces], Flags]:
        """The pieces of rows whose text has changed, and which rows keep theirs for want of such."""
        # The first row of the next other pair of the window, after the last the first.
        following = np.searchsorted(pairs, pairs, side="right") % max(len(pairs), 1)
        fell_back, is_needed = np.zeros(len(pairs), dtype=bool), np.zeros(len(pairs), dtype=bool)
        for (_, modifier), chosen in zip(self._modifiers, drawn, strict=True):
            if not isinstance(modifier, SubwordModifier):
                fell_back |= chosen
            if isinstance(modifier, MergingModifier):
                is_needed[following[chosen]] = True
        plain = self._decoded(np.flatnonzero(is_needed | fell_back).tolist(), source, target)
        texts = {row: plain[row] for row in np.flatnonzero(fell_back).tolist() if row in plain}
        for (_, modifier), chosen, state in zip(self._modifiers, drawn, states, strict=True):
            for row in np.flatnonzero(chosen).tolist():
                other = int(following[row])
                if row not in texts:
                    continue
                if isinstance(modifier, TextModifier):
                    texts[row] = self._changed(modifier, texts[row], Draws(state[row]))
                elif isinstance(modifier, MergingModifier) and pairs[other] != pairs[row] and other in plain:
                    tags, pair = texts[row]
                    if plain[other][0] == plain[row][0]:  # else of another language
                        texts[row] = tags, modifier.merge(pair, plain[other][1], Draws(state[row]))
        fell_back[list(texts)] = False
        rows = [row for row, text in texts.items() if text != plain[row]]
        new = self._encoded([texts[row] for row in rows])
        fell_back[[row for row, both in zip(rows, new, strict=True) if both is None]] = True
        return {row: both for row, both in zip(rows, new, strict=True) if both is not None}, fell_back

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

    def _encoded(self, texts: Sequence[Text]) -> list[Pieces | None]:
        """The pieces of both sides; None where a side has none, or one that is unknown."""
        sources = self._tokenizer.encode_source([source for _, (source, _) in texts])
        targets = self._tokenizer.encode_target([target for _, (_, target) in texts])
        return [
            (tags[0] + source, tags[1] + target)
            if source and target and UNK_ID not in source and UNK_ID not in target
            else None
            for (tags, _), source, target in zip(texts, sources, targets, strict=True)
        ]

    def _fits(self, pairs: Sequence[Pieces]) -> Flags:
        """(pairs,): for which a micro-batch and the model have room."""
        most = np.iinfo(np.uint16).max
        counts = [(min(len(source), most), min(len(target), most)) for source, target in pairs]
        lengths = np.array(counts, dtype=np.uint16).reshape(-1, 2)
        fits: Flags = (lengths <= self._longest).all(axis=1) & self._budget.holds(lengths)
        return fits


class _Words:
    """Cuts the words of one side into other pieces. A word is a run of normal pieces; the first one begins with
    the mark of a space; any other piece stays as it is."""

    def __init__(self, modifier: SubwordModifier, pieces: Sequence[Any], key: int) -> None:
        self._modifier, self._key = modifier, key
        self._texts = [piece.piece for piece in pieces]
        self._is_normal = [piece.type == _PIECE.NORMAL for piece in pieces]
        self._begins = [piece.type != _PIECE.NORMAL or piece.piece.startswith(WORD_BEGIN) for piece in pieces]
        self._ids = {text: number for number, text in enumerate(self._texts) if self._is_normal[number]}
        self._scores = {text: pieces[number].score for text, number in self._ids.items()}
        self._kept: dict[tuple[tuple[int, ...], int], list[int]] = {}

    def recut(self, row: list[int], draws: Draws) -> list[int]:
        """A row with each of its words in one of its variants."""
        starts = [n for n, piece in enumerate(row) if n == 0 or self._begins[piece] or not self._is_normal[row[n - 1]]]
        cut: list[int] = []
        for start, end in itertools.pairwise([*starts, len(row)]):
            word = tuple(row[start:end]), draws.below(VARIANTS)
            if (variant := self._kept.get(word)) is None:
                if len(self._kept) >= MAX_KEPT:
                    self._kept.clear()
                self._kept[word] = variant = self._variant(*word)
            cut += variant
        return cut

    def _variant(self, word: tuple[int, ...], number: int) -> list[int]:
        """A function of the run's key, the word and the number alone: forgotten it is made again."""
        text = "".join(self._texts[piece] for piece in word)
        if not self._is_normal[word[0]] or len(text) > MAX_LETTERS:
            return list(word)
        digest = hashlib.blake2b(f"{self._key} {number} {text}".encode(), digest_size=8).digest()
        pieces = self._modifier.cut(text, self._scores, Draws(int.from_bytes(digest, "little")))
        ids = [self._ids.get(piece, UNK_ID) for piece in pieces]
        return list(word) if UNK_ID in ids else ids  # some models have characters that are not pieces


def _split(row: list[int], controls: set[int]) -> tuple[list[int], list[int]]:
    """The tags that a row begins with, and the rest."""
    count = 0
    while count < len(row) and row[count] in controls:
        count += 1
    return row[:count], row[count:]


def _replaced(rows: Ragged, numbers: Integers, new: list[list[int]]) -> Ragged:
    """Rows, with others in place of some."""
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
            f"{where}: {min(tags)} is not a piece of the tokenizer, whose tags are "
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
            raise UserError(
                f"{where}: is for {modifier.model_type} tokenizers, and {tokenizer.file_name(side)} is a {kind} one; "
                "use bpe_dropout for bpe, unigram_sampling for unigram, or leave it out"
            )


def make_augmenters(datasets: Sequence[Dataset], section: StreamSection, *, seed: int) -> list[Augmenter | None]:
    """The augmenter of each dataset; None where nothing is to be changed.

    Args:
        datasets: of the stream.
        section: its `augment`.
        seed: the run's seed.

    Raises:
        UserError: a dataset's tokenizer cannot be used with a modifier.
    """
    chosen = [modifiers_of(section, number) for number in range(len(datasets))]
    if not any(chosen):
        return [None] * len(datasets)
    longest = [max(dataset.longest(side) - 1 for dataset in datasets) for side in SIDES]
    budget = Budget.of(section)
    return [
        Augmenter(modifiers, datasets[0].tokenizer, seed=seed, dataset=number, longest=longest, budget=budget)
        if modifiers
        else None
        for number, modifiers in enumerate(chosen)
    ]


def settings_number(section: StreamSection, num_datasets: int) -> int | None:
    """A number of 63 bits for the modifiers of all datasets; None where there are none."""
    chosen = [modifiers_of(section, number) for number in range(num_datasets)]
    if not any(chosen):
        return None
    plain = [[[number, dataclasses.asdict(modifier)] for number, modifier in of_one] for of_one in chosen]
    digest = hashlib.blake2b(json.dumps(plain, sort_keys=True).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def modifiers_of(section: StreamSection, number: int) -> list[tuple[int, Modifier]]:
    """The modifiers of a dataset, each with its number in the list."""
    path = section.datasets[number].path if section.datasets else None
    return [
        (place, modifier)
        for place, modifier in enumerate(section.augment)
        if modifier.probability > 0 and (not modifier.datasets or path in modifier.datasets)
    ]
