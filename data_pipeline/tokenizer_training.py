"""Training a SentencePiece tokenizer on an even sample of the corpus."""

import io
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import sentencepiece

from configs import TokenizerSection, UserError
from data_pipeline.randomness import Purpose, random_bits
from data_pipeline.raw_text import TextChunk
from data_pipeline.tokenizer import (
    BOS_ID,
    EOS_ID,
    JOINT_FILE,
    PAD_ID,
    SOURCE_FILE,
    TARGET_FILE,
    UNK_ID,
    Tokenizer,
)

SEGMENT_CHARS = 1000
"""SentencePiece leaves out lines of more than 4,192 bytes; so many characters never are."""


@dataclass(slots=True)
class Sample:
    """An even sample of the pairs that went by (reservoir sampling; Vitter, 1985, algorithm R).

    One pass, bounded memory, and the same pairs for the same seed and order. Pairs with an empty side are
    passed over.
    """

    size: int
    seed: int
    num_seen: int = 0
    """Pairs that went by, empty ones included."""
    num_eligible: int = 0
    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)

    def add(self, chunk: TextChunk) -> None:
        """Let a chunk's pairs go by."""
        rows = [i for i, (s, t) in enumerate(zip(chunk.sources, chunk.targets, strict=True)) if s.strip() and t.strip()]
        numbers = np.arange(self.num_eligible, self.num_eligible + len(rows))
        bits = random_bits(len(rows), self.seed, Purpose.TOKENIZER_SAMPLE, self.num_seen)
        places = bits % (numbers + 1).astype(np.uint64)  # 64 bits: the remainder is even enough
        for row, number, place in zip(rows, numbers.tolist(), places.tolist(), strict=True):
            if number < self.size:
                self.sources.append(chunk.sources[row])
                self.targets.append(chunk.targets[row])
            elif place < self.size:
                self.sources[place], self.targets[place] = chunk.sources[row], chunk.targets[row]
        self.num_seen += len(chunk.sources)
        self.num_eligible += len(rows)


def train_tokenizer(section: TokenizerSection, sample: Sample) -> Tokenizer:
    """Train on a sample. The same sample and section give the same bytes.

    Raises:
        UserError: the vocabulary is too large or too small for the corpus; the message says what is possible.
    """
    if section.vocabulary == "joint":
        lines = itertools.chain.from_iterable(zip(sample.sources, sample.targets, strict=True))
        return Tokenizer({JOINT_FILE: _train(section, lines, "vocab_size", section.vocab_size)})
    target_size = section.target_vocab_size or section.vocab_size
    target_field = "target_vocab_size" if section.target_vocab_size else "vocab_size"
    return Tokenizer(
        {
            SOURCE_FILE: _train(section, sample.sources, "vocab_size", section.vocab_size),
            TARGET_FILE: _train(section, sample.targets, target_field, target_size),
        }
    )


def _train(section: TokenizerSection, lines: Iterable[str], field_name: str, size: int) -> bytes:
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=segments(lines),
            model_writer=model,
            model_type=section.kind,
            vocab_size=size,
            character_coverage=section.character_coverage,
            byte_fallback=section.byte_fallback,
            normalization_rule_name=section.normalization,
            num_threads=section.threads,
            pad_id=PAD_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            unk_id=UNK_ID,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explain(str(error), field_name, size) from error
    return model.getvalue()


def segments(lines: Iterable[str]) -> Iterator[str]:
    """The lines, long ones cut at spaces into pieces that SentencePiece takes in."""
    for line in lines:
        rest = line
        while len(rest) > SEGMENT_CHARS:
            space = rest.rfind(" ", 0, SEGMENT_CHARS)
            cut = space if space > 0 else SEGMENT_CHARS
            yield rest[:cut]
            rest = rest[cut:]
        yield rest


def _explain(message: str, field_name: str, size: int) -> Exception:
    """SentencePiece's error in this project's words."""
    where = f"prepare.tokenizer.{field_name}: {size} pieces"
    if found := re.search(r"Please set it to a value <= (\d+)", message):
        return UserError(f"{where} are more than the corpus supports; allowed is at most {found[1]}")
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return UserError(
            f"{where} do not hold the corpus's characters; allowed is at least {found[1]}, "
            "or a lower prepare.tokenizer.character_coverage"
        )
    if "all_chars_count" in message or "sentences_.empty()" in message:
        return UserError("prepare.train: no text is left to train a tokenizer on; allowed is a corpus with sentences")
    return RuntimeError(f"SentencePiece: {message}")
