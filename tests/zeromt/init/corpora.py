"""Corpora of every form that `zeromt init` takes, made of the bundled one."""

import gzip
from pathlib import Path
from xml.sax.saxutils import escape

from tests.conftest import BUNDLED

Pairs = list[tuple[str, str]]


def bundled(count: int) -> Pairs:
    """The first of the bundled training pairs."""
    packed = [(BUNDLED / f"train.{language}.gz").read_bytes() for language in ("en", "fr")]
    english, french = (gzip.decompress(text).decode().split("\n")[:count] for text in packed)
    return list(zip(english, french, strict=True))


def two_files(folder: Path, pairs: Pairs) -> list[str]:
    """Two parallel files; their names."""
    names = ["corpus.en", "corpus.fr"]
    for name, lines in zip(names, zip(*pairs, strict=True), strict=True):
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return names


def tsv(folder: Path, pairs: Pairs) -> list[str]:
    """A compressed TSV."""
    rows = "".join(f"{source}\t{target}\n" for source, target in pairs)
    (folder / "corpus.en-fr.tsv.gz").write_bytes(gzip.compress(rows.encode(), mtime=0))
    return ["corpus.en-fr.tsv.gz"]


def tmx(folder: Path, pairs: Pairs) -> list[str]:
    """A translation memory."""
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{escape(source)}</seg></tuv>'
        f'<tuv xml:lang="fr-FR"><seg>{escape(target)}</seg></tuv></tu>\n'
        for source, target in pairs
    )
    (folder / "memory.en-fr.tmx").write_text(
        f'<?xml version="1.0"?>\n<tmx version="1.4"><header/><body>\n{units}</body></tmx>\n'
    )
    return ["memory.en-fr.tmx"]
