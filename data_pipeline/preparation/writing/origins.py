"""Who is to be named for a dataset's corpus."""

from collections.abc import Sequence
from pathlib import Path

from configs import PrepareSection
from configs.process.files.inside import read_bytes
from configs.reading.interpolations import as_saved
from data_pipeline.preparation.raw.corpus import unit_paths
from data_pipeline.prepared.index import INDEX_FILE, SourceEntry, joined, parse_index


def sources_of(section: PrepareSection) -> list[SourceEntry] | None:
    """Licence and attribution of each unit, without counts; None if there are none.

    A translated dataset brings those of its own.

    Raises:
        UserError: such a dataset is broken.
    """
    files = as_saved(section.train.twice() if section.monolingual else section.train)
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


def _of_dataset(path: Path) -> Sequence[SourceEntry]:
    index = path / INDEX_FILE
    return parse_index(read_bytes(index), index).sources or () if index.is_file() else ()
