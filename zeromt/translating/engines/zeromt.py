"""The engine `zeromt`: a run, or an ensemble of runs, on CPUs and GPUs."""

import contextlib
import dataclasses
import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from typing_extensions import override

from configs.components import TranslationEngine, component
from configs.fields import PathText
from zeromt.translating.corpus.splitting import FAILED, cut, fitting, joined

if TYPE_CHECKING:
    from configs import RunConfig, SearchSection
    from trainer.inference.translation.translator import Translation
    from zeromt.translating.worker import Chunk, Line

Translate = Callable[[Iterable["Chunk"], Callable[[int], None]], Iterator[list["list[Translation] | str"]]]
"""From chunks, taken a few ahead, to what became of their lines, in order: translations, best first, or why there are
none; calls its second argument with the number of lines just done."""


@component("translation_engine", "zeromt")
class Zeromt(TranslationEngine):
    """A run, or an ensemble of runs with one tokenizer, searched as by `zeromt translate`."""

    runs: Annotated[list[PathText], Field(min_length=1)]
    """Folders of runs, or checkpoints; the probabilities of several are averaged."""
    search: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Fields of `evaluation.search` that replace the run's."""
    raw_weights: bool = False
    """Use the weights of the last update, not their moving average."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] | None = None
    """Number format; fp32 on CPUs and the run's on GPUs by default."""
    source_language: str | None = None
    """Of models with tags on both sides; the run's by default."""
    target_language: str | None = None
    """Of models with tags on both sides; the run's by default."""
    paragraphs: bool = False
    """Translate each sentence of a line by itself, and join them: for models of sentences."""

    @override
    def prepare(self, candidates: int) -> "PreparedRun":
        return PreparedRun(self, candidates)


class PreparedRun:
    """A run, or several, of which every byte was verified; nothing large is loaded yet."""

    def __init__(self, engine: Zeromt, candidates: int) -> None:
        from configs import load_saved
        from data_pipeline.tokenizer import Tokenizer
        from trainer.inference.loading import check_same_tokenizer, find_checkpoint
        from trainer.inference.translation.languages import language_tags
        from trainer.inference.translation.sources import SourceCounts
        from trainer.runs.layout import CONFIG, model_identity
        from zeromt.translating.command import check_settings
        from zeromt.translating.worker import Settings

        checkpoints = self.checkpoints = [find_checkpoint(Path(run)) for run in engine.runs]
        check_same_tokenizer([checkpoint.folder for checkpoint in checkpoints])
        configs = [load_saved(checkpoint.folder / CONFIG) for checkpoint in checkpoints]
        self.config = configs[0]
        self.tokenizer = Tokenizer.load(checkpoints[0].folder)
        self.longest = min(config.model.max_positions for config in configs) - 1
        self.counts = SourceCounts()
        self.paragraphs = engine.paragraphs
        languages = {"source": engine.source_language, "target": engine.target_language}
        self.settings: Settings = Settings(
            checkpoints=[str(checkpoint.folder) for checkpoint in checkpoints],
            tags=language_tags(self.config.prepare, self.tokenizer, **languages),
            section=_searched(self.config, engine.search, candidates),
            raw_weights=engine.raw_weights,
            precision=engine.precision,
            n_best=candidates,
        )
        check_settings(self.settings, self.config, option="--candidates")
        self.identity: Mapping[str, Any] = {
            "kind": engine.kind,
            "models": [model_identity(checkpoint.folder) for checkpoint in checkpoints],
            "raw_weights": engine.raw_weights,
            "precision": engine.precision,
            "source_language": engine.source_language,
            "target_language": engine.target_language,
            "paragraphs": engine.paragraphs,
            "search": json.loads(json.dumps(dataclasses.asdict(self.settings.section))),
        }
        """All that decides the translations, as JSON: hashes of models, and settings; no paths."""

    def start(self, stack: contextlib.ExitStack, folder: Path, *, processes: int | None) -> Translate:
        """Load the models, in this process or several.

        Args:
            stack: ends what is started.
            folder: for files that all parts share, such as an export.
            processes: None for one on each GPU or core.

        Raises:
            UserError: they cannot be loaded.
        """
        from trainer.ranks.process import tune_process
        from zeromt.translating.command import start_work
        from zeromt.translating.undoing import with_undoing

        tune_process()
        work = with_undoing(start_work(stack, self.settings, processes), self.config)

        def translate(chunks: Iterable["Chunk"], on_lines: Callable[[int], None]) -> Iterator[list[Any]]:
            waiting: deque[list[list[str] | str]] = deque()

            def cut_up(chunk: "Chunk") -> "Chunk":
                waiting.append(self.parts(chunk))
                return cut(chunk, [[] if isinstance(line, str) else line for line in waiting[-1]])

            for answer in work(map(cut_up, chunks), on_lines):
                self.counts.add(answer.counts)
                found = (line for line in answer.lines if line is not None)
                yield [
                    line if isinstance(line, str) else _joined([next(found) for _ in line])
                    for line in waiting.popleft()
                ]

        return translate

    def build(self) -> Mapping[str, str]:
        """Versions and the kind of processor, among which translations may differ in a few pieces."""
        import torch

        from trainer.runs.layout import versions

        device = torch.cuda.get_device_name() if torch.cuda.is_available() else torch.backends.cpu.get_cpu_capability()
        return {**versions(["zeromt", "torch", "sentencepiece"]), "processor": device}

    def warnings(self) -> list[str]:
        """About tags and unknown pieces."""
        from trainer.inference.translation.sources import expects_tag

        is_expected = expects_tag(self.checkpoints[0], self.config)
        return self.counts.warnings(self.tokenizer, self.longest + 1, expects_tag=is_expected)

    def parts(self, chunk: "Chunk") -> list[list[str] | str]:
        """The texts to translate of each line, or why there are none."""
        from trainer.inference.translation.languages import encode_source

        def fits(texts: Sequence[str]) -> list[bool]:
            return [len(row) <= self.longest for row in encode_source(self.tokenizer, texts, self.settings.tags)]

        return fitting(self.tokenizer, chunk.sources, fits, paragraphs=self.paragraphs)


def _searched(config: "RunConfig", given: Mapping[str, Any], candidates: int) -> "SearchSection":
    """The run's search with other fields; several candidates are a beam of as many, unless one is named or sampled.

    Raises:
        UserError: a field is unknown, or they contradict each other.
    """
    from configs import SearchSection
    from zeromt.translating.command import search_section
    from zeromt.translating.parsing import parse_option

    section = config.evaluation.search
    of_samplers = ("sample", "sampler", "temperature", "top_k", "top_p", "epsilon")
    own = {name: value for name, value in given.items() if name not in of_samplers}
    parse_option("engine.search", [f"{name}={json.dumps(value)}" for name, value in own.items()], SearchSection)
    changed = dict(given)
    if isinstance(sampler := given.get("sampler"), dict):
        changed["sampler"] = json.dumps(sampler)
    found = search_section(section, changed)
    if candidates > found.beam and found.sampler is None and "beam" not in given:
        found = search_section(found, {"beam": candidates})
    return found


def _joined(parts: "Sequence[Line]") -> "list[Translation] | str":
    """What became of a line, from what became of its parts."""
    if any(math.isnan(one.log_prob) for part in parts for one in part.translations):
        return FAILED
    return joined(part.translations for part in parts)
