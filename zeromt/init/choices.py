"""The rules of docs/choosing.md and docs/preprocessing.md, for a corpus and this machine: what, and why."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from configs.languages import language
from configs.process.gpus import num_usable
from launcher.machine.cores import num_cores
from zeromt.init.survey import Found

SPARE = 8
SPECIAL = 4
"""Pieces of every vocabulary: PAD, BOS, EOS and the unknown one."""
MANY_CHARACTERS = 1500
"""Different characters in a sample from which on its text is no alphabet's."""
PIECE = 15
"""Characters of a word that can surely become one piece."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What trains."""

    gpus: int
    cores: int

    @classmethod
    def here(cls) -> "Machine":
        """This one."""
        return cls(num_usable(), num_cores())

    def __str__(self) -> str:
        number, unit = (self.gpus, "GPU") if self.gpus else (self.cores, "CPU core")
        return f"{number} {unit}{'s' * (number != 1)}"


@dataclass(frozen=True, slots=True)
class Choice:
    """A setting and the reason for it."""

    key: str
    value: Any
    why: str


@dataclass(frozen=True, slots=True)
class Size:
    """A row of the tables."""

    most_pairs: float
    model: dict[str, Any]
    update_tokens: int
    epochs: int
    rate: float
    warmup: int
    pieces: int
    why: str


def _small(d_model: int, layers: int, heads: int, d_ff: int) -> dict[str, Any]:
    attention, feed_forward = {"num_heads": heads}, {"d_ff": d_ff}
    return {"d_model": d_model, "encoder_layers": layers, "decoder_layers": layers, "attention": attention,
            "feed_forward": feed_forward}  # fmt: skip


SIZES = (
    Size(1e4, _small(128, 2, 4, 512), 2048, 20, 2e-3, 150, 4000, "less than 10,000 pairs"),
    Size(1e5, _small(256, 3, 4, 1024), 2048, 20, 2e-3, 150, 8000, "10,000 to 100,000 pairs"),
    Size(1e6, _small(512, 6, 8, 2048), 8192, 20, 7e-4, 4000, 16_000, "to a million pairs"),
    Size(1e7, {"preset": "vaswani_base"}, 24_576, 10, 7e-4, 4000, 32_000, "to ten million pairs"),
    Size(float("inf"), {"preset": "vaswani_big"}, 24_576, 5, 5e-4, 4000, 32_000, "more than ten million pairs"),
)
"""By the number of pairs: docs/choosing.md, docs/preprocessing.md."""
OF_CPUS = 1
"""The largest row that CPUs can train in an hour."""


@dataclass(kw_only=True, frozen=True, slots=True)
class Choices:
    """All that is chosen."""

    tokenizer: Choice
    max_pieces: Choice
    cleaning: Choice
    run: tuple[Choice, ...]
    """`preset` or `model`, `stream` and the sections behind it."""


def choose(found: Found, languages: tuple[str, str], machine: Machine) -> Choices:
    """The settings for a corpus on a machine.

    Args:
        found: what the corpus has.
        languages: codes of source and target.
        machine: that will train.
    """
    pairs = found.num_pairs - found.num_blank
    row = next(number for number, size in enumerate(SIZES) if pairs < size.most_pairs)
    size = SIZES[row]
    if not machine.gpus and row > OF_CPUS:
        size = replace(SIZES[OF_CPUS], why="what CPUs train in an hour")
    tokenizer = _tokenizer(found, languages, size)
    is_joint = tokenizer.value["vocabulary"] == "joint"
    max_pieces = _max_pieces(found)
    lanes = max(2, machine.gpus) if machine.gpus else max(2, min(machine.cores, 8))
    budget = max(size.update_tokens // lanes // 64 * 64, 512, 2 * max_pieces.value)
    tokens = float(np.mean([len(pair.target) for pair in found.sample])) / _characters_a_piece(found) + 1
    updates = _rounded(max(300, size.epochs * pairs * tokens / (0.9 * lanes * budget)))
    counted = {"budget": "tokens"} if machine.gpus else {}  # which pack rows
    stream = Choice(
        "stream",
        {"micro_batches": lanes, "source_tokens": budget, "target_tokens": budget, **counted},
        f"{lanes * budget:,} tokens an update suit {size.why}; {lanes} micro-batches for {machine}",
    )
    return Choices(
        tokenizer=tokenizer,
        max_pieces=max_pieces,
        cleaning=_cleaning(found),
        run=(*_model(size, pairs, machine, is_joint=is_joint), stream, *_training(size, updates, machine, pairs)),
    )


def _model(size: Size, pairs: int, machine: Machine, *, is_joint: bool) -> list[Choice]:
    rate = 0.3 if pairs < 30_000 else 0.2 if pairs < 300_000 else 0.1
    model, why = dict(size.model), f"{pairs:,} pairs: the model for {size.why}"
    if not machine.gpus and pairs >= size.most_pairs:
        why = f"the largest model that {machine} train in an hour; with a GPU {pairs:,} pairs deserve a larger one"
    preset = model.pop("preset", None)
    if preset is None:
        model["dropout"] = rate
        why += f"; dropout {rate} against learning them by heart" if rate > 0.1 else ""
    if not is_joint:
        model["tied_embeddings"] = "decoder"
        why += "; two vocabularies cannot share one matrix"
    own = [Choice("model", model, why if preset is None else "two vocabularies cannot share one matrix")]
    return [Choice("preset", preset, why), *(own if model else [])] if preset is not None else own


def _training(size: Size, updates: int, machine: Machine, pairs: int) -> list[Choice]:
    warmup = min(size.warmup, updates // 5)
    every = max(50, min(250 if not machine.gpus else 2000, updates // 12 // 50 * 50))
    schedule: dict[str, Any] = {"kind": "linear", "warmup_updates": warmup}
    training: dict[str, Any] = {"max_updates": updates, "log_every": 100 if machine.gpus else 25}
    why = f"about {size.epochs} passes over the data" if updates > 300 else "few pairs: enough updates to see it learn"
    if not machine.gpus:
        minutes = 15 if pairs < SIZES[OF_CPUS].most_pairs else 60
        schedule["ends_with"] = "minutes"
        training["max_minutes"] = minutes
        why += f", or {minutes} minutes, whichever comes first; more give a better model"
    return [
        Choice("optimizer", {"lr": size.rate, "clip_norm": 1.0}, "the peak rate for a model of this size"),
        Choice("schedule", schedule, "the end is known, so the rate falls to 0 by then"),
        Choice("training", training, why),
        Choice("evaluation", {"every_updates": every}, "loss, BLEU and chrF of the validation set"),
        Choice("checkpoint", {"every_updates": every}, "as often, so that the best step has a checkpoint"),
    ]


def _tokenizer(found: Found, languages: tuple[str, str], size: Size) -> Choice:
    tags = [f">>{code}<<" for code in sorted(found.codes)] if found.is_tagged else []
    scripts = [language(code).script for code in languages]
    is_joint = bool(tags) or None in scripts or scripts[0] == scripts[1]
    sides = [[pair.source for pair in found.sample], [pair.target for pair in found.sample]]
    texts = [[*sides[0], *sides[1]]] if is_joint else sides
    wanted = size.pieces * (2 if len(tags) > 10 else 1)
    sizes = [_feasible(text, wanted, len(tags)) for text in texts]
    vocabulary = "joint" if is_joint else "separate"
    value: dict[str, Any] = {"kind": "bpe", "vocabulary": vocabulary, "vocab_size": sizes[0], "spare": SPARE}
    if len(set(sizes)) > 1:
        value["target_vocab_size"] = sizes[1]
    if tags:
        value["tags"] = tags
    if _num_characters(texts) > MANY_CHARACTERS:
        value["character_coverage"] = 0.9995
    why = "one script, so one vocabulary" if is_joint else "two scripts, so two vocabularies"
    why = "a vocabulary for all languages, and a tag for each target" if tags else why
    bound = "as large as so little text supports" if min(sizes) < wanted else f"for {size.why}"
    return Choice("tokenizer", value, f"{why}; {bound}; spare pieces for later tags")


def _feasible(lines: Sequence[str], wanted: int, num_tags: int) -> int:
    """The wanted size, or what SentencePiece can surely make of the text: half of its different words, and all
    characters. A word of more characters than a piece has counts as several.
    """
    words = {word[at : at + PIECE] for line in lines for word in line.split() for at in range(0, len(word), PIECE)}
    must = _num_characters([lines]) + SPECIAL + SPARE + num_tags + 1
    most = must + len(words) // 2
    return max(min(wanted, most), must) if most < 1000 else max(min(wanted, most) // 100 * 100, must)


def _num_characters(texts: Sequence[Sequence[str]]) -> int:
    return len({character for lines in texts for line in lines for character in line})


def _characters_a_piece(found: Found) -> float:
    """Roughly: of an alphabet three, of text without spaces one."""
    is_spaced = np.mean([pair.target.count(" ") / len(pair.target) for pair in found.sample]) > 0.05
    return 3.0 if is_spaced else 1.2


def _max_pieces(found: Found) -> Choice:
    lengths = [max(len(pair.source), len(pair.target)) for pair in found.sample]
    longest = float(np.quantile(lengths, 0.999))
    needed = longest / _characters_a_piece(found) * 1.5
    value = next((size for size in (64, 128, 256) if needed <= size), 512)
    return Choice(
        "max_pieces", value, f"99.9 % of the sides have at most {longest:.0f} characters; longer ones are left out"
    )


def _cleaning(found: Found) -> Choice:
    value = {"normalization": "nfc", "control_characters": "remove", "held_out_overlap": "side"}
    why = "keeps every pair with a held-out sentence, in any case and spacing, out of training"
    if found.num_repeats:
        value["duplicates"] = "drop"
        why += f"; {found.num_repeats:,} pairs repeat another"
    return Choice("cleaning", value, why)


def _rounded(number: float) -> int:
    """Two significant digits."""
    return int(float(f"{number:.2g}"))
