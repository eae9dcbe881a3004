"""The engine `ctranslate2`: an export of a run, made where the corpus is translated and kept under its hash."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import override

from configs.components import Candidate, Prepared, Sources, Translate, Translated, TranslationEngine, component
from configs.errors import UserError
from configs.fields import PathText
from configs.process.text import digest
from zeromt.translating.corpus.folder import locked
from zeromt.translating.corpus.splitting import LongLines, joined
from zeromt.translating.engines.zeromt import Zeromt, prepared_run

if TYPE_CHECKING:
    from zeromt.exporting.as_ctranslate2 import Exported

_FOLDER = "exports"


@component("translation_engine", "ctranslate2")
class CTranslate2(TranslationEngine):
    """A run's export for CTranslate2, on CPUs; in int8 it is several times as quick as the run, and a little worse."""

    run: PathText
    """A run's folder, or a checkpoint."""
    quantization: Literal["float32", "int8", "int8_float32", "int16", "int8_bfloat16", "bfloat16", "float16"] = "int8"
    """Number format of the weights."""
    search: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Fields of `evaluation.search` that replace the run's; there is no sampling, which it cannot seed by line."""
    source: PathText | None = None
    """Sentences for the check of the export and its BLEU beside the run's; the run's validation set by default."""
    reference: PathText | None = None
    """Their references."""
    raw_weights: bool = False
    """Use the weights of the last update, not their moving average."""
    source_language: str | None = None
    """Of models with tags on both sides; the run's by default."""
    target_language: str | None = None
    """Of models with tags on both sides; the run's by default."""
    paragraphs: bool = False
    """Translate each sentence of a line by itself, and join them: for models of sentences."""

    @override
    def prepare(self, candidates: int) -> Prepared:
        return _Prepared(self, candidates)


class _Prepared:
    """A checkpoint that was verified."""

    def __init__(self, engine: CTranslate2, candidates: int) -> None:
        of_run = Zeromt(
            runs=[engine.run],
            search=engine.search,
            raw_weights=engine.raw_weights,
            source_language=engine.source_language,
            target_language=engine.target_language,
            paragraphs=engine.paragraphs,
        )
        self.run = prepared_run(of_run, candidates)
        if self.run.settings.section.sampler is not None:
            raise UserError(
                "engine.search.sampler: with ctranslate2, which seeds no line's samples; take the kind zeromt, or beam"
            )
        self._engine, self._candidates = engine, candidates
        same = {name: self.run.identity[name] for name in ("models", "raw_weights", "search", "paragraphs")}
        languages = {"source_language": engine.source_language, "target_language": engine.target_language}
        self.identity: Mapping[str, Any] = {
            "kind": engine.kind,
            "quantization": engine.quantization,
            **same,
            **languages,
        }

    def start(self, stack: contextlib.ExitStack, folder: Path, *, processes: int | None) -> Translate:
        """Load the export, which the first part makes."""
        from zeromt.exporting.as_ctranslate2 import Exported

        place = folder / _FOLDER / digest([self.identity["models"], self._engine.quantization])[:16]
        with locked(folder, f"{_FOLDER}/export.lock", wait=True):
            if not place.exists():
                self._export(place)
        workers = len(os.sched_getaffinity(0)) if processes is None else processes
        run = self.run
        exported = Exported(place, run.tokenizer, run.settings.section, max_positions=run.longest + 1, workers=workers)

        def translate(chunks: Iterable[Sources], on_lines: Callable[[int], None]) -> Iterator[list[Translated]]:
            for chunk in chunks:
                yield self._translated(exported, chunk)

        return translate

    def build(self) -> Mapping[str, str]:
        """Versions, and the kind of processor."""
        from trainer.runs.versions import versions

        return {**self.run.build(), **versions(["ctranslate2"])}

    def warnings(self) -> list[str]:
        """About tags and unknown pieces: none are counted."""
        return []

    def _export(self, place: Path) -> None:
        from configs.process.progress import say
        from trainer.runs.new_folder import new_folder
        from zeromt.exporting import as_ctranslate2
        from zeromt.exporting.check import find_text, make_sample
        from zeromt.exporting.command import load_exact

        trained = load_exact(self.run.checkpoints[0].folder, raw=self._engine.raw_weights)
        text = find_text(trained.config, self._engine.source, self._engine.reference)
        sample = make_sample(trained.model, trained.tokenizer, text)
        with new_folder(place) as folder:
            notes = as_ctranslate2.export(trained, folder, sample, text, quantization=self._engine.quantization)
        for line in notes:
            say(f"{place}: {line}")

    def _translated(self, exported: "Exported", chunk: Sources) -> list[Translated]:
        parts = LongLines(self.run.tokenizer, self.run.fits, paragraphs=self._engine.paragraphs).parts(chunk.lines)
        texts = [text for line in parts for text in line or []]
        found = exported.candidates(texts, self._candidates, tags=self.run.settings.tags)
        by_part = ([Candidate(text=text, score=score) for text, score in one] for one in found)
        return joined([None if line is None else len(line) for line in parts], _optional(by_part))


def _optional(parts: Iterable[Sequence[Candidate]]) -> Iterator[Sequence[Candidate] | None]:
    yield from parts
