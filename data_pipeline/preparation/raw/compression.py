"""Decompression in constant memory, whatever a few bytes expand to, and whatever window a file asks for."""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import zstandard

from configs import UserError

COMPRESSED = frozenset({".gz", ".zst", ".xz", ".bz2"})
PIECE_BYTES = 1 << 20
"""Most bytes of a piece of decompressed data."""
MAX_WINDOW = 256 << 20
"""Most bytes of earlier text that a file may have its reader keep: as `zstd --long=28` does, and four times `xz -9`."""
ZSTD_SLICE = 2048
"""Compressed bytes given to zstandard at a time, as it cannot bound its output: four bytes become 128 KiB at most, so a
slice becomes 64 MiB at most. Larger slices are not faster."""

_MAGIC = {b"\x1f\x8b\x08": ".gz", b"\x28\xb5\x2f\xfd": ".zst", b"\xfd7zXZ\0": ".xz", b"BZh": ".bz2"}
_STREAMS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(wbits=zlib.MAX_WBITS | 16),
    ".zst": lambda: zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj(),
    ".xz": lambda: lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=MAX_WINDOW + (1 << 20)),
    ".bz2": bz2.BZ2Decompressor,
}


def packing(head: bytes) -> str:
    """The compression recognised from a file's first bytes; "" if it is not compressed."""
    return next((suffix for magic, suffix in _MAGIC.items() if head.startswith(magic)), "")


def decompress(path: Path, blocks: Iterator[bytes], suffix: str) -> Iterator[bytes]:
    """Decompress all streams of a file, in pieces of at most PIECE_BYTES.

    The libraries' own file readers are not suitable: zstandard's ends a truncated frame without an error, those of lzma
    and bz2 take a broken second stream for the end, and none can read a pipe whose first bytes were read already.

    Args:
        path: its name, for messages.
        blocks: its bytes.
        suffix: of `COMPRESSED`.

    Raises:
        UserError: during reading, if it is broken, truncated, or needs a larger window than MAX_WINDOW.
    """
    make = _STREAMS[suffix]
    stream, started, is_first = make(), False, True
    for block in blocks:
        data = block
        while data := data if started or is_first else data.lstrip(b"\0"):  # zeros may pad streams
            now, data = (data[:ZSTD_SLICE], data[ZSTD_SLICE:]) if suffix == ".zst" else (data, b"")
            try:
                yield from _pieces(stream, now, suffix)
            except (zstandard.ZstdError, lzma.LZMAError, zlib.error, OSError) as error:
                raise _broken(path, suffix, error) from error
            started = True
            if stream.eof:
                data = stream.unused_data + data
                stream, started, is_first = make(), False, False
    if started:
        raise UserError(f"{path}: is cut short: its compressed data ends early")


def _pieces(stream: Any, data: bytes, suffix: str) -> Iterator[bytes]:
    """What one more block becomes."""
    if suffix == ".zst":
        text = stream.decompress(data)
        yield from (text[i : i + PIECE_BYTES] for i in range(0, len(text), PIECE_BYTES))
        return
    yield stream.decompress(data, PIECE_BYTES)
    if suffix == ".gz":
        while stream.unconsumed_tail:
            yield stream.decompress(stream.unconsumed_tail, PIECE_BYTES)
        return
    while not stream.eof and not stream.needs_input:
        yield stream.decompress(b"", PIECE_BYTES)


def _broken(path: Path, suffix: str, error: Exception) -> UserError:
    text = " ".join(str(error).split())
    if "memory" in text.lower():  # the libraries give the reason as text alone
        again = f"xz -dc {path.name} | xz -9" if suffix == ".xz" else f"zstd -dc --long=31 {path.name} | zstd -9"
        return UserError(
            f"{path}: needs a window of more than {MAX_WINDOW >> 20} MiB to decompress; compress it again: `{again}`"
        )
    return UserError(f"{path}: is broken: {text}")
