"""What becomes of a window's pairs: modifiers drawn for each pair, in the order of the list."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from configs import StreamSection
from configs.components import MergingModifier, Modifier, SubwordModifier, make
from data_pipeline.order.randomness import GOLDEN, Purpose, mixed, random_bits, threshold
from data_pipeline.order.windows import Budget
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.augmentation.texts import PairTexts, check_spelling
from data_pipeline.stream.augmentation.variants import Variants
from data_pipeline.stream.augmentation.vocabulary import Vocabulary, gather
from data_pipeline.stream.batch import Ragged
from data_pipeline.tokenizer import Tokenizer
from data_pipeline.vocabularies import widest

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Bits = NDArray[np.uint64]
_DRAWS = np.uint64(0x8CB92BA72F3D8DD7)


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
        longest: tuple[int, int],
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
        self._longest, self._budget = np.array(longest), budget
        self._key = random_bits(1, seed, Purpose.AUGMENT, dataset)[0]
        self._vocabularies = [Vocabulary(tokenizer, side) for side in ((0,) if tokenizer.is_joint else (0, 1))]
        self._texts = PairTexts(tokenizer, self._vocabularies)
        self._text_modifiers: list[tuple[int, Modifier]] = []
        self._subwords: tuple[int, SubwordModifier] | None = None
        for number, modifier in modifiers:
            where = f"stream.augment.{number}: {modifier.kind}"
            if isinstance(modifier, SubwordModifier):
                for vocabulary in self._vocabularies:
                    vocabulary.check(modifier.model_type, where)
                self._subwords = number, modifier
            else:
                check_spelling(modifier, tokenizer, where)
                self._text_modifiers.append((number, modifier))
        self._variants: list[Variants] = []
        if self._subwords is not None:
            own = random_bits(1, seed, Purpose.AUGMENT, dataset, self._subwords[0] + 1)[0]
            self._variants = [Variants(v, self._subwords[1].build(v), own) for v in self._vocabularies]
        self._lock = Lock()

    def __call__(self, source: Ragged, target: Ragged, is_there: Flags, pairs: Integers, passes: Integers) -> Augmented:
        """Change a window's pairs.

        Args:
            source: rows of plain pieces.
            target: as many.
            is_there: (pairs,): whether a pair could be read.
            pairs: (pairs,): their numbers in the dataset, in ascending order.
            passes: (pairs,): each one's pass over the dataset.
        """
        with self._lock, np.errstate(over="ignore"):
            by_pass = mixed(self._key + (passes.astype(np.uint64) + np.uint64(1)) * GOLDEN)
            keys = mixed(by_pass + (pairs.astype(np.uint64) + np.uint64(1)) * GOLDEN)
            sides, has_text, fell_back = self._change_texts(source, target, is_there, pairs, keys)
            fell_back |= has_text & ~self._fits(sides)
            sides = [_instead(plain, side, ~fell_back) for plain, side in zip((source, target), sides, strict=True)]
            has_pieces = np.zeros(len(pairs), dtype=bool)
            if self._subwords is not None:
                number, modifier = self._subwords
                has_pieces = _is_drawn(keys, number, modifier) & is_there
                cut = self._recut(sides, np.flatnonzero(has_pieces), keys)
                fits = self._fits(cut)
                fell_back |= has_pieces & ~fits
                cut = [_instead(plain, side, fits) for plain, side in zip((source, target), cut, strict=True)]
                sides = [_instead(text, side, has_pieces) for text, side in zip(sides, cut, strict=True)]
        return Augmented(sides[0], sides[1], (has_text | has_pieces) & ~fell_back, fell_back)

    def _change_texts(
        self, source: Ragged, target: Ragged, is_there: Flags, pairs: Integers, keys: Bits
    ) -> tuple[list[Ragged], Flags, Flags]:
        """Both sides after the modifiers of text, which pairs have another text, and which kept theirs for want."""
        has_text, fell_back = (np.zeros(len(pairs), dtype=bool) for _ in range(2))
        drawn = [(n, m, _is_drawn(keys, n, m) & is_there) for n, m in self._text_modifiers]
        is_any = np.logical_or.reduce([d for _, _, d in drawn]) if drawn else has_text
        rows = np.flatnonzero(is_any)
        if len(rows) == 0:
            return [source, target], has_text, fell_back
        is_merged = np.zeros(len(pairs), dtype=bool)
        for _, modifier, d in drawn:
            if isinstance(modifier, MergingModifier):
                is_merged |= d
        following = _following(pairs, is_there)
        needed = np.unique(np.concatenate([rows, following[is_merged & (following >= 0)]]))
        texts = self._texts.decode(needed, source, target)
        before = {row: texts[row] for row in rows.tolist() if row in texts}
        after = dict(before)
        for number, modifier, d in drawn:
            states = _states(keys, number).tolist()
            for row in np.flatnonzero(d).tolist():
                if row in after:
                    neighbour = texts.get(int(following[row])) if isinstance(modifier, MergingModifier) else None
                    if neighbour is not None and neighbour[0] != before[row][0]:
                        neighbour = None  # of another language
                    after[row] = self._texts.changed(modifier, after[row], neighbour, states[row])
        fell_back[[row for row in rows.tolist() if row not in before]] = True
        changed = [row for row, text in after.items() if text != before[row]]
        new, is_spelled = self._texts.encode([after[row] for row in changed])
        numbers = np.array(changed, dtype=np.int64)
        fell_back[numbers[~is_spelled]] = True
        # A tokenizer that folds case makes the plain pair of capitals.
        are_alike = _are_alike(new[0], source, numbers) & _are_alike(new[1], target, numbers)
        has_text[numbers[is_spelled & ~are_alike]] = True
        sides = [_replaced(side, numbers, rows) for side, rows in zip((source, target), new, strict=True)]
        return (
            [_instead(plain, side, has_text) for plain, side in zip((source, target), sides, strict=True)],
            has_text,
            fell_back,
        )

    def _recut(self, sides: Sequence[Ragged], rows: Integers, keys: Bits) -> list[Ragged]:
        """Both sides with the words of some rows cut anew."""
        recut = []
        for number, side in enumerate(sides):
            own = mixed(keys[rows] + np.uint64(number + 1) * _DRAWS)
            recut.append(
                _replaced(side, rows, self._variants[number % len(self._variants)].recut(gather(side, rows), own))
            )
        return recut

    def _fits(self, sides: Sequence[Ragged]) -> Flags:
        """(pairs,): whether a micro-batch and the model have room for them."""
        lengths = np.stack([np.minimum(side.lengths, np.iinfo(np.uint16).max) for side in sides], axis=1)
        fits: Flags = (lengths <= self._longest).all(axis=1) & self._budget.holds(lengths.astype(np.uint16))
        return fits


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
    source, target = (max(int(d.blocks[f"longest_{side}"].max()) for d in datasets) for side in ("source", "target"))
    budget = Budget.of(section)
    augmenters: list[Augmenter | None] = []
    for number, (dataset, modifiers) in enumerate(zip(datasets, chosen, strict=True)):
        own = tokenizer or dataset.tokenizer
        if modifiers:
            place = {"seed": seed, "dataset": number}
            made = Augmenter(modifiers, own, longest=(source, target), budget=budget, **place)
        augmenters.append(made if modifiers else None)
    return augmenters


def settings_number(datasets: Sequence[Dataset], section: StreamSection) -> int | None:
    """A number of 63 bits for the modifiers of all datasets; None where there are none."""
    chosen = [modifiers_of(section, dataset, number) for number, dataset in enumerate(datasets)]
    if not any(chosen):
        return None
    plain = [[[number, dataclasses.asdict(modifier)] for number, modifier in of_one] for of_one in chosen]
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


def _is_drawn(keys: Bits, number: int, modifier: Modifier) -> Flags:
    """(pairs,): whether the modifier takes each."""
    if modifier.probability >= 1:
        return np.ones(len(keys), dtype=bool)
    drawn: Flags = mixed(keys + np.uint64(number + 1) * GOLDEN) < threshold(modifier.probability)
    return drawn


def _states(keys: Bits, number: int) -> Bits:
    """(pairs,): what a modifier's draws for each pair begin at."""
    return mixed(keys + np.uint64(number + 1) * _DRAWS)


def _following(pairs: Integers, is_there: Flags) -> Integers:
    """(pairs,): the row of the next other pair of the window, after the last the first; -1 where it is not there."""
    firsts = np.flatnonzero(np.diff(pairs, prepend=-1))
    if len(firsts) < 2:
        return np.full(len(pairs), -1)
    following = np.roll(firsts, -1)[np.searchsorted(firsts, np.arange(len(pairs)), side="right") - 1]
    return np.where(is_there[following], following, -1)


def _are_alike(new: Ragged, rows: Ragged, numbers: Integers) -> Flags:
    """(numbers,): whether each new row is the one that it is in the place of."""
    are_alike: Flags = new.lengths == rows.lengths[numbers]
    for place in np.flatnonzero(are_alike).tolist():
        are_alike[place] = np.array_equal(new[place], rows[numbers[place]])
    return are_alike


def _replaced(rows: Ragged, numbers: Integers, new: Ragged) -> Ragged:
    """Rows, some of them by others."""
    starts, lengths = rows.starts.copy(), rows.lengths.copy()
    starts[numbers] = len(rows.pieces) + new.starts
    lengths[numbers] = new.lengths
    kind = np.result_type(rows.pieces.dtype, np.uint16)
    return Ragged(np.concatenate([rows.pieces, new.pieces.astype(kind)]), starts, lengths)


def _instead(plain: Ragged, other: Ragged, chosen: Flags) -> Ragged:
    """The other rows where they are chosen, else the plain ones. The other array begins with the plain one."""
    if other is plain:
        return plain
    starts, lengths = (np.where(chosen, getattr(other, n), getattr(plain, n)) for n in ("starts", "lengths"))
    return Ragged(other.pieces, starts, lengths)
