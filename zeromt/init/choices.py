"""The rules of docs/training.md and docs/data.md, for a corpus and this machine: what, and why."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from configs.languages import language
from zeromt.init.corpus import CorpusSummary

TAGS = [">>bt<<"]
"""Of back-translated text, should there be some later."""
SPECIAL = 4
"""PAD, BOS, EOS and the unknown piece."""
MANY_CHARACTERS = 1500
"""With as many different characters in a sample, its script is not an alphabet."""
PIECE = 15
"""Characters of a word that can surely become one piece."""


class Machine(NamedTuple):
    """What trains."""

    gpus: int
    cores: int

    def __str__(self) -> str:
        number, unit = (self.gpus, "GPU") if self.gpus else (self.cores, "CPU core")
        return f"{number} {unit}{'s' * (number != 1)}"


class Choice(NamedTuple):
    """A setting and the reason for it."""

    key: str
    value: Any
    why: str


class Size(NamedTuple):
    """A row of the tables of docs/training.md and docs/data.md, by the number of pairs."""

    most_pairs: float
    model: dict[str, Any] | str
    """Fields of the section, or a preset."""
    update_tokens: int
    epochs: int
    rate: float
    warmup: int
    pieces: int
    why: str


def _model(d_model: int, layers: int, heads: int, d_ff: int) -> dict[str, Any]:
    attention, feed_forward = {"num_heads": heads}, {"d_ff": d_ff}
    return {"d_model": d_model, "encoder_layers": layers, "decoder_layers": layers, "attention": attention,
            "feed_forward": feed_forward}  # fmt: skip


SIZES = (
    Size(1e4, _model(128, 2, 4, 512), 2048, 20, 2e-3, 150, 4000, "less than 10,000 pairs"),
    Size(1e5, _model(256, 3, 4, 1024), 2048, 20, 2e-3, 150, 8000, "10,000 to 100,000 pairs"),
    Size(1e6, _model(512, 6, 8, 2048), 8192, 20, 7e-4, 4000, 16_000, "to a million pairs"),
    Size(1e7, "vaswani_base", 24_576, 10, 7e-4, 4000, 32_000, "to ten million pairs"),
    Size(float("inf"), "vaswani_big", 24_576, 5, 5e-4, 4000, 32_000, "more than ten million pairs"),
)
CLEANING = Choice(
    "cleaning",
    {"normalization": "nfc", "control_characters": "remove", "duplicates": "drop", "held_out_overlap": "side"},
    "keeps every pair with a held-out sentence, in any case and spacing, out of training",
)
OF_CPUS = 1
"""The largest row that CPUs can train in an hour."""


def choose(summary: CorpusSummary, languages: tuple[str, str], machine: Machine) -> tuple[list[Choice], list[Choice]]:
    """The settings for a corpus on a machine: further ones of `prepare`, and the other sections.

    Args:
        summary: what the corpus has.
        languages: codes of source and target.
        machine: that will train.
    """
    pairs = summary.num_pairs
    row = next(number for number, size in enumerate(SIZES) if pairs < size.most_pairs)
    size = SIZES[row]
    if not machine.gpus and row > OF_CPUS:
        size = SIZES[OF_CPUS]._replace(why=f"what {machine} train in an hour; with a GPU a larger one is better")
    tokenizer = _tokenizer(summary, languages, size)
    max_pieces = _max_pieces(summary)
    is_joint = tokenizer.value["vocabulary"] == "joint"
    lanes = max(8, machine.gpus) if machine.gpus else max(2, min(machine.cores, 8))
    budget = max(
        size.update_tokens // lanes // 64 * 64,
        256 if machine.gpus else 512,  # a GPU computes several micro-batches as one
        2 * max_pieces.value,
    )
    tokens = float(np.mean([len(target) for _, target in summary.sample])) / _characters_a_piece(summary) + 1
    updates = int(float(f"{max(300, size.epochs * pairs * tokens / (0.9 * lanes * budget)):.2g}"))
    why = f"about {size.epochs} passes over the data" if updates > 300 else "few pairs: enough updates to see it learn"
    schedule: dict[str, Any] = {"kind": "linear", "warmup_updates": min(size.warmup, updates // 5)}
    training: dict[str, Any] = {"max_updates": updates, "log_every": 100 if machine.gpus else 25}
    if not machine.gpus:
        minutes = 15 if row <= OF_CPUS else 60
        schedule["ends_with"], training["max_minutes"] = "minutes", minutes
        why += f", or {minutes} minutes, whichever comes first; more give a better model"
    every = max(50, min(2000 if machine.gpus else 250, updates // 12 // 50 * 50))
    counted = {"budget": "tokens"} if machine.gpus else {}  # which pack rows
    stream = {"micro_batches": lanes, "source_tokens": budget, "target_tokens": budget, **counted}
    return [tokenizer, max_pieces, CLEANING], [
        *_models(size, pairs, is_joint=is_joint),
        Choice("stream", stream, f"{lanes * budget:,} tokens an update; {lanes} micro-batches for {machine}"),
        Choice("optimizer", {"lr": size.rate, "clip_norm": 1.0}, "the peak rate for a model of this size"),
        Choice("schedule", schedule, "the end is known, so the rate falls to 0 by then"),
        Choice("training", training, why),
        Choice("evaluation", {"every_updates": every}, "loss, BLEU and chrF of the validation set"),
        Choice("checkpoint", {"every_updates": every}, "as often, so that the best step has a checkpoint"),
    ]


def _models(size: Size, pairs: int, *, is_joint: bool) -> list[Choice]:
    why, untied = f"{pairs:,} pairs: the model for {size.why}", {} if is_joint else {"tied_embeddings": "decoder"}
    if isinstance(size.model, str):
        own = [Choice("model", untied, "two vocabularies cannot share one matrix")] if untied else []
        return [Choice("preset", size.model, why), *own]
    rate = 0.3 if pairs < 30_000 else 0.2 if pairs < 300_000 else 0.1
    return [Choice("model", {**size.model, "dropout": rate, **untied}, f"{why}; dropout against learning by heart")]


def _tokenizer(summary: CorpusSummary, languages: tuple[str, str], size: Size) -> Choice:
    scripts = [language(code).script for code in languages]
    is_joint = None in scripts or scripts[0] == scripts[1]
    sides = [[source for source, _ in summary.sample], [target for _, target in summary.sample]]
    texts = [[*sides[0], *sides[1]]] if is_joint else sides
    sizes = [_feasible(text, size.pieces) for text in texts]
    vocabulary = "joint" if is_joint else "separate"
    value: dict[str, Any] = {"kind": "bpe", "vocabulary": vocabulary, "vocab_size": sizes[0], "tags": TAGS}
    if len(set(sizes)) > 1:
        value["target_vocab_size"] = sizes[1]
    if max(map(_num_characters, texts)) > MANY_CHARACTERS:
        value["character_coverage"] = 0.9995
    why = "one script, so one vocabulary" if is_joint else "two scripts, so two vocabularies"
    bound = "as large as so little text supports" if min(sizes) < size.pieces else f"for {size.why}"
    return Choice("tokenizer", value, f"{why}; {bound}; a tag for later back-translations")


def _feasible(lines: Sequence[str], wanted: int) -> int:
    """The wanted size, or what SentencePiece can surely make of the text: half of its different words, and all
    characters. A word of more characters than a piece has counts as several.
    """
    words = {word[at : at + PIECE] for line in lines for word in line.split() for at in range(0, len(word), PIECE)}
    must = _num_characters(lines) + SPECIAL + len(TAGS) + 1
    most = must + len(words) // 2
    return max(min(wanted, most), must) if most < 1000 else max(min(wanted, most) // 100 * 100, must)


def _num_characters(lines: Sequence[str]) -> int:
    return len(set().union(*lines))


def _characters_a_piece(summary: CorpusSummary) -> float:
    """Roughly: of an alphabet three, of text without spaces one."""
    spaces = float(np.mean([target.count(" ") / len(target) for _, target in summary.sample]))
    return 3.0 if spaces > 0.05 else 1.2


def _max_pieces(summary: CorpusSummary) -> Choice:
    longest = float(np.quantile([max(map(len, pair)) for pair in summary.sample], 0.999))
    needed = longest / _characters_a_piece(summary) * 1.5
    value = next((size for size in (64, 128, 256) if needed <= size), 512)
    return Choice("max_pieces", value, f"99.9 % of the sides have at most {longest:.0f} characters; longer ones go")
