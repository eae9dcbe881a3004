"""Corpora of every form that `zeromt init` takes, made of the bundled one."""

import gzip
from itertools import islice
from pathlib import Path
from xml.sax.saxutils import escape

from tests.conftest import BUNDLED

Pairs = list[tuple[str, str]]


def bundled(count: int) -> Pairs:
    """The first of the bundled training pairs."""
    with gzip.open(BUNDLED / "train.en.gz", "rt") as sources, gzip.open(BUNDLED / "train.fr.gz", "rt") as targets:
        return [(s.rstrip("\n"), t.rstrip("\n")) for s, t in islice(zip(sources, targets, strict=True), count)]


def two_files(folder: Path, pairs: Pairs) -> list[str]:
    """Two parallel files; their names."""
    names = ["corpus.en", "corpus.fr"]
    with (folder / names[0]).open("w") as sources, (folder / names[1]).open("w") as targets:
        for source, target in pairs:
            sources.write(f"{source}\n")
            targets.write(f"{target}\n")
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
