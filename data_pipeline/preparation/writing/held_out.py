"""The validation and test sets, stored as unchanged text."""

from pathlib import Path

from configs import PrepareSection
from configs.process.files.inside import write_text
from data_pipeline.preparation.raw.corpus import read_whole
from data_pipeline.prepared.index import HeldOutEntry, HeldOutSplit, describe_file

HELD_OUT: tuple[HeldOutSplit, ...] = ("valid", "test")

Pairs = list[tuple[str, str]]


def read_held_out(section: PrepareSection) -> dict[HeldOutSplit, Pairs]:
    """The pairs of each set that the section names.

    Raises:
        UserError: a file is broken.
    """
    files = {split: section.valid if split == "valid" else section.test for split in HELD_OUT}
    return {
        split: list(zip(*read_whole(corpus, section.root), strict=True))
        for split, corpus in files.items()
        if not corpus.is_empty
    }


def write_held_out(split: HeldOutSplit, pairs: Pairs, folder: Path, *, target_tag: str | None) -> HeldOutEntry:
    """Store a set as text, one line each; the sources with the dataset's tag."""
    tag = f"{target_tag} " if target_tag else ""
    paths = [folder / f"{split}.{side}.txt" for side in ("source", "target")]
    for path, lines in zip(paths, ([tag + s for s, _ in pairs], [t for _, t in pairs]), strict=True):
        write_text(path, "".join(f"{line}\n" for line in lines))
    return HeldOutEntry(source=describe_file(paths[0]), target=describe_file(paths[1]), lines=len(pairs))
