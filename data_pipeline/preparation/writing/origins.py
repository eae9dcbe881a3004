"""Who is to be named for a dataset's corpus."""

from configs import PrepareSection
from configs.reading.variables import as_saved
from data_pipeline.preparation.raw.corpus import unit_paths
from data_pipeline.prepared.index import SourceEntry


def sources_of(section: PrepareSection) -> list[SourceEntry] | None:
    """Licence and attribution of each unit, without counts; None if there are none."""
    files = as_saved(section.train)
    found = [
        SourceEntry(
            files=list(dict.fromkeys(path.name for path in paths)),
            pairs=0,
            licence=files.source_of("licence", number),
            attribution=files.source_of("attribution", number),
        )
        for number, paths in enumerate(unit_paths(files, section.root))
    ]
    return found if any(entry.licence or entry.attribution for entry in found) else None
