"""Text to pieces, in several processes; the result does not depend on how many.

The children import this module: it stays light (no torch, no webdataset).
"""

import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from configs import UserError
from data_pipeline.raw_text import TextChunk
from data_pipeline.tokenizer import Tokenizer

EMPTY = "empty"
TOO_LONG = "too long"


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """The pairs of a chunk that are kept."""

    source: NDArray[np.unsignedinteger]
    """Source pieces of all pairs, one after the other."""
    target: NDArray[np.unsignedinteger]
    lengths: NDArray[np.uint16]
    """(pairs, 2): pieces of source and target."""
    num_read: int
    num_equal: int
    """Kept pairs whose source is their target."""
    dropped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Encoder:
    """Encodes chunks; what a process needs to do so."""

    tokenizer_files: dict[str, bytes]
    max_pieces: int
    refuse_bad_pairs: bool
    dtype: str

    def stream(self, chunks: Iterable[TextChunk], workers: int) -> Iterator[EncodedChunk]:
        """Encode chunks in order, with a bounded number of them in flight.

        Raises:
            UserError: a pair is empty or too long and such pairs are refused. The first one is named.
        """
        if workers == 1:
            tokenizer = Tokenizer(self.tokenizer_files)
            for chunk in chunks:
                yield encode(self, tokenizer, chunk)
            return
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, context, _start_child, (self,)) as pool:
            chunks = iter(chunks)
            try:
                waiting: deque[Future[EncodedChunk]] = deque(
                    pool.submit(_encode_in_child, c) for c in itertools.islice(chunks, 2 * workers)
                )
                while waiting:
                    done = waiting.popleft().result()
                    waiting.extend(pool.submit(_encode_in_child, c) for c in itertools.islice(chunks, 1))
                    yield done
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


def encode(encoder: Encoder, tokenizer: Tokenizer, chunk: TextChunk) -> EncodedChunk:
    """Encode one chunk, leaving out empty and too long pairs.

    Raises:
        UserError: there is such a pair and they are refused.
    """
    sources, targets = tokenizer.encode_source(chunk.sources), tokenizer.encode_target(chunk.targets)
    lengths = np.array([[len(s), len(t)] for s, t in zip(sources, targets, strict=True)], dtype=np.int64)
    is_empty = (lengths == 0).any(axis=1)
    is_long = (lengths > encoder.max_pieces).any(axis=1) & ~is_empty
    kept = ~(is_empty | is_long)
    if encoder.refuse_bad_pairs and not kept.all():
        row = int(np.argmin(kept))
        raise UserError(f"{chunk.where(row)}: {_describe(encoder, lengths[row])}, or prepare.on_bad_pair=drop")
    rows = np.flatnonzero(kept).tolist()
    dtype = np.dtype(encoder.dtype)
    return EncodedChunk(
        source=_concatenate(sources, rows, dtype),
        target=_concatenate(targets, rows, dtype),
        lengths=lengths[kept].astype(np.uint16),
        num_read=len(chunk.sources),
        num_equal=sum(chunk.sources[r] == chunk.targets[r] for r in rows),
        dropped=Counter({EMPTY: int(is_empty.sum()), TOO_LONG: int(is_long.sum())}),
    )


def _describe(encoder: Encoder, lengths: NDArray[np.int64]) -> str:
    if not lengths.all():
        return f"the {'target' if lengths[0] else 'source'} is empty; allowed is text on both sides"
    side, longest = ("source", lengths[0]) if lengths[0] > encoder.max_pieces else ("target", lengths[1])
    return f"the {side} has {longest} pieces; allowed is at most prepare.max_pieces={encoder.max_pieces}"


def _concatenate(
    pieces: list[list[int]], rows: list[int], dtype: np.dtype[np.unsignedinteger]
) -> NDArray[np.unsignedinteger]:
    return np.fromiter(itertools.chain.from_iterable(pieces[r] for r in rows), dtype=dtype)


# A process of the pool keeps its tokenizer here: initializers have nowhere else to put one.
_child: tuple[Encoder, Tokenizer] | None = None


def _start_child(encoder: Encoder) -> None:
    global _child
    _child = encoder, Tokenizer(encoder.tokenizer_files)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its children
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _encode_in_child(chunk: TextChunk) -> EncodedChunk:
    assert _child is not None
    return encode(*_child, chunk)
