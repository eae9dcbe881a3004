"""One side's vocabulary as arrays, for cutting words anew."""

import numpy as np
from numpy.typing import NDArray
from sentencepiece import sentencepiece_model_pb2

from configs import UserError
from data_pipeline.stream.batch import Ragged
from data_pipeline.tag_pieces import WORD_BEGIN
from data_pipeline.tokenizer import Side, Tokenizer

_PIECE = sentencepiece_model_pb2.ModelProto.SentencePiece
_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}


class Vocabulary:
    """The pieces of one side of a tokenizer. P is their number.

    Only normal pieces are cut anew: tags, unknown and user-defined pieces and those of bytes stay.
    """

    def __init__(self, tokenizer: Tokenizer, side: int) -> None:
        """See the class.

        Args:
            tokenizer: whose.
            side: 0 is the source's, 1 the target's.
        """
        named: Side = "source" if side == 0 else "target"
        proto = tokenizer.proto(named)
        self.name = tokenizer.file_name(named)
        self.model_type = _TYPES.get(int(proto.trainer_spec.model_type), "other")
        self.pieces: list[str] = [str(piece.piece) for piece in proto.pieces]
        self.scores: NDArray[np.float64] = np.array([piece.score for piece in proto.pieces], dtype=np.float64)
        """(P,)."""
        self.is_normal: NDArray[np.bool_] = np.array([piece.type == _PIECE.NORMAL for piece in proto.pieces])
        """(P,)."""
        self.is_control: NDArray[np.bool_] = np.array([piece.type == _PIECE.CONTROL for piece in proto.pieces])
        self.begins_word: NDArray[np.bool_] = np.array([piece.startswith(WORD_BEGIN) for piece in self.pieces])
        """(P,): whether a piece begins with the mark of a word's beginning."""
        self.ids: dict[str, int] = {p: i for i, p in enumerate(self.pieces) if self.is_normal[i]}
        """Ids of the normal pieces."""
        self.letters = Ragged.of([self._letters(number) for number in range(len(self.pieces))])
        """(P,) rows: the ids of a normal piece's characters. A character that is no piece has one beyond all pieces."""

    def check(self, model_type: str, where: str) -> None:
        """Refuse a tokenizer whose words cannot be cut one by one, or in this way.

        Raises:
            UserError: its words cannot.
        """
        if self.model_type != model_type:
            other = {"bpe": "bpe_dropout", "unigram": "unigram_sampling"}.get(self.model_type)
            use = f"use {other}" if other else "leave it out"
            raise UserError(
                f"{where}: is for {model_type} tokenizers, and {self.name} is a {self.model_type} one; {use}"
            )
        across = [piece for piece in self.ids if WORD_BEGIN in piece[1:] and piece.strip(WORD_BEGIN)]
        if across:
            raise UserError(
                f"{where}: {self.name} has pieces across words, such as {across[0]!r}; use it with a tokenizer whose "
                "words begin with the mark of a space (split_by_whitespace)"
            )

    def _letters(self, number: int) -> list[int]:
        if not self.is_normal[number]:
            return [number]
        return [self.ids.get(letter, len(self.pieces) + ord(letter)) for letter in self.pieces[number]]


def gather(rows: Ragged, numbers: NDArray[np.int64]) -> Ragged:
    """Some rows, any number of times, one after the other in one array."""
    lengths = rows.lengths[numbers]
    ends = np.cumsum(lengths)
    starts = ends - lengths
    places = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(rows.starts[numbers] - starts, lengths)
    return Ragged(rows.pieces[places], starts, lengths)
