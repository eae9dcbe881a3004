"""The engine `ctranslate2`: an export of a run, made where the corpus is translated and kept under its hash."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import override

from configs.components import TranslationEngine, component
from configs.errors import UserError
from configs.fields import PathText
from configs.process.text import digest
from zeromt.translating.corpus.folder import locked
from zeromt.translating.corpus.splitting import joined
from zeromt.translating.engines.zeromt import PreparedRun, Translate, Zeromt

if TYPE_CHECKING:
    from zeromt.translating.worker import Chunk

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
    def prepare(self, candidates: int) -> PreparedRun:
        return _PreparedExport(self, candidates)


class _PreparedExport(PreparedRun):
    """A checkpoint that was verified, and is to be exported."""

    def __init__(self, engine: CTranslate2, candidates: int) -> None:
        names = ("search", "raw_weights", "source_language", "target_language", "paragraphs")
        given = {name: getattr(engine, name) for name in names}
        super().__init__(Zeromt(runs=[engine.run], **given), candidates)
        if self.settings.section.sampler is not None:
            raise UserError(
                "engine.search.sampler: with ctranslate2, which seeds no line's samples; take the kind zeromt, or beam"
            )
        self._engine, self._candidates = engine, candidates
        self.identity = {**self.identity, "kind": engine.kind, "quantization": engine.quantization}

    @override
    def start(self, stack: contextlib.ExitStack, folder: Path, *, processes: int | None) -> Translate:
        """Load the export, which the first part makes."""
        from trainer.inference.translation.translator import Translation
        from zeromt.exporting.as_ctranslate2 import Exported

        place = folder / _FOLDER / digest([self.identity["models"], self._engine.quantization])[:16]
        with locked(folder, f"{_FOLDER}/export.lock", wait=True):
            if not place.exists():
                self._export(place)
        workers = len(os.sched_getaffinity(0)) if processes is None else processes
        section, longest = self.settings.section, self.longest + 1
        exported = Exported(place, self.tokenizer, section, max_positions=longest, workers=workers)

        def translate(chunks: Iterable["Chunk"], on_lines: Callable[[int], None]) -> Iterator[list[Any]]:
            for chunk in chunks:
                parts = self.parts(chunk)
                texts = [text for line in parts if not isinstance(line, str) for text in line]
                found = iter(exported.candidates(texts, self._candidates, tags=self.settings.tags))
                by_part = ([Translation(text=t, log_prob=s, score=s, ids=[]) for t, s in one] for one in found)
                yield [line if isinstance(line, str) else joined([next(by_part) for _ in line]) for line in parts]

        return translate

    @override
    def build(self) -> Mapping[str, str]:
        from trainer.runs.layout import versions

        return {**super().build(), **versions(["ctranslate2"])}

    def _export(self, place: Path) -> None:
        from configs.process.progress import say
        from trainer.runs.new_folder import new_folder
        from zeromt.exporting import as_ctranslate2
        from zeromt.exporting.check import find_text, make_sample
        from zeromt.exporting.command import load_exact

        trained = load_exact(self.checkpoints[0].folder, raw=self._engine.raw_weights)
        text = find_text(trained.config, self._engine.source, self._engine.reference)
        sample = make_sample(trained.model, trained.tokenizer, text)
        with new_folder(place) as folder:
            notes = as_ctranslate2.export(trained, folder, sample, text, quantization=self._engine.quantization)
        for line in notes:
            say(f"{place}: {line}")
