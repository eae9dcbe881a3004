"""Where a dataset's corpus was, and who is to be named for it: what follows a pair to its raw line needs both."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from configs import CorpusFiles, PrepareSection
from configs.process.files.inside import read_bytes, write_text
from configs.reading.interpolations import as_saved
from data_pipeline.preparation.raw.corpus import unit_paths
from data_pipeline.prepared.index import INDEX_FILE, ORIGIN_FILE, SourceEntry, joined, parse_index


def write_origin(folder: Path, section: PrepareSection) -> None:
    """Say beside the places where the corpus was: its fields that are not at their defaults, and from which folder."""
    files = as_saved(_corpus(section))
    given, defaults = dataclasses.asdict(files), dataclasses.asdict(CorpusFiles())
    train = {name: value for name, value in given.items() if value != defaults[name]}
    tree = {"folder": str(Path.cwd()), "root": as_saved(section).root, "train": train}
    write_text(folder / ORIGIN_FILE, json.dumps(tree, indent=1, ensure_ascii=False) + "\n")


def sources_of(section: PrepareSection) -> list[SourceEntry] | None:
    """Licence and attribution of each unit, without counts; None if there are none.

    A translated dataset brings those of its own.

    Raises:
        UserError: such a dataset is broken.
    """
    files = as_saved(_corpus(section))
    found = []
    for number, paths in enumerate(unit_paths(files, section.root)):
        texts = paths[:-1] if files.translations is not None else paths  # without the side file
        beside = [entry for path in texts for entry in _of_dataset(path)]
        found.append(
            SourceEntry(
                files=list(dict.fromkeys(path.name for path in texts)),
                pairs=0,
                licence=joined([*files.source_of("licence", number), *(entry.licence for entry in beside)]),
                attribution=joined([*files.source_of("attribution", number), *(entry.attribution for entry in beside)]),
            )
        )
    return found if any(entry.licence or entry.attribution for entry in found) else None


def _corpus(section: PrepareSection) -> CorpusFiles:
    return section.train.twice() if section.monolingual else section.train


def _of_dataset(path: Path) -> Sequence[SourceEntry]:
    index = path / INDEX_FILE
    return parse_index(read_bytes(index), index).sources or () if index.is_file() else ()
