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

from configs.components import Candidate, Prepared, Sources, Translate, Translated, TranslationEngine, component
from configs.fields import PathText
from zeromt.translating.corpus.splitting import NEXT_PART, LongLines, joined

if TYPE_CHECKING:
    from configs import RunConfig, SearchSection
    from trainer.checkpoint.format import Checkpoint
    from zeromt.translating.worker import Chunk, Line


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
    def prepare(self, candidates: int) -> Prepared:
        return prepared_run(self, candidates)


class PreparedRun:
    """Checkpoints that were verified."""

    def __init__(self, engine: Zeromt, checkpoints: "Sequence[Checkpoint]", candidates: int) -> None:
        from configs import load_saved
        from data_pipeline.tokenizer import Tokenizer
        from trainer.inference.translation.languages import language_tags
        from trainer.inference.translation.sources import SourceCounts
        from trainer.runs.identity import model_identity
        from trainer.runs.layout import CONFIG
        from zeromt.translating.command import check_settings
        from zeromt.translating.worker import Settings

        configs = [load_saved(checkpoint.folder / CONFIG) for checkpoint in checkpoints]
        self.config = configs[0]
        self.tokenizer = Tokenizer.load(checkpoints[0].folder)
        self.checkpoints = checkpoints
        self.longest = min(config.model.max_positions for config in configs) - 1
        self.counts = SourceCounts()
        self.paragraphs = engine.paragraphs
        languages = {"source": engine.source_language, "target": engine.target_language}
        self.settings: Settings = Settings(
            checkpoints=[str(checkpoint.folder) for checkpoint in checkpoints],
            tags=language_tags(self.config.prepare, self.tokenizer, **languages),
            section=searched(self.config, engine.search, candidates),
            raw_weights=engine.raw_weights,
            precision=engine.precision,
            n_best=candidates,
            with_alignment=False,
            alignment_layer=None,
            num_pictures=0,
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
            "search": as_json(self.settings.section),
        }

    @property
    def run(self) -> "PreparedRun":
        """Itself."""
        return self

    def start(self, stack: contextlib.ExitStack, folder: Path, *, processes: int | None) -> Translate:
        """Load the models, in this process or several."""
        from trainer.ranks.process import tune_process
        from zeromt.translating.command import start_work
        from zeromt.translating.undoing import with_undoing

        tune_process()
        work = with_undoing(start_work(stack, self.settings, processes), self.config)

        def translate(chunks: Iterable[Sources], on_lines: Callable[[int], None]) -> Iterator[list[Translated]]:
            waiting: deque[list[int | None]] = deque()
            cut = (self._cut(chunk, waiting) for chunk in chunks)
            for answer in work(cut, on_lines):
                self.counts.add(answer.counts)
                yield joined(waiting.popleft(), (_candidates(line) for line in answer.lines if line is not None))

        return translate

    def build(self) -> Mapping[str, str]:
        """Versions, and the kind of processor."""
        import torch

        from trainer.runs.versions import versions

        device = torch.cuda.get_device_name() if torch.cuda.is_available() else torch.backends.cpu.get_cpu_capability()
        return {**versions(["zeromt", "torch", "sentencepiece"]), "processor": device}

    def warnings(self) -> list[str]:
        """About tags and unknown pieces."""
        from trainer.inference.translation.sources import expects_tag

        is_expected = expects_tag(self.checkpoints[0], self.config)
        return self.counts.warnings(self.tokenizer, self.longest + 1, expects_tag=is_expected)

    def _cut(self, chunk: Sources, waiting: "deque[list[int | None]]") -> "Chunk":
        """The texts to translate; how many each line has become, None where it has none, is left in `waiting`."""
        from zeromt.translating.worker import Chunk

        parts = LongLines(self.tokenizer, self.fits, paragraphs=self.paragraphs).parts(chunk.lines)
        waiting.append([None if texts is None else len(texts) for texts in parts])
        of_lines = list(zip(chunk.numbers, (texts or [] for texts in parts), strict=True))
        return Chunk(
            first=chunk.numbers[0] - 1 if chunk.numbers else 0,
            sources=[text for _, texts in of_lines for text in texts],
            keys=[number - 1 + i * NEXT_PART for number, texts in of_lines for i in range(len(texts))],
        )

    def fits(self, texts: Sequence[str]) -> list[bool]:
        """Whether the model holds each of some texts."""
        from trainer.inference.translation.languages import encode_source

        return [len(row) <= self.longest for row in encode_source(self.tokenizer, texts, self.settings.tags)]


def prepared_run(engine: Zeromt, candidates: int) -> PreparedRun:
    """The checkpoints of an engine, with every byte verified."""
    from trainer.inference.loading import check_same_tokenizer, find_checkpoint

    checkpoints = [find_checkpoint(Path(run)) for run in engine.runs]
    check_same_tokenizer([checkpoint.folder for checkpoint in checkpoints])
    return PreparedRun(engine, checkpoints, candidates)


def searched(config: "RunConfig", given: Mapping[str, Any], candidates: int) -> "SearchSection":
    """The run's search with other fields; several candidates are a beam of as many, unless one is named or sampled.

    Raises:
        UserError: a field is unknown, or they contradict each other.
    """
    from configs import SearchSection
    from zeromt.translating.command import search_section
    from zeromt.translating.parsing import parse_option

    section = config.evaluation.search
    of_samplers = {"sample", *SAMPLING}
    own = {name: value for name, value in given.items() if name not in of_samplers and name != "sampler"}
    parse_option("engine.search", [f"{name}={json.dumps(value)}" for name, value in own.items()], SearchSection)
    changed = dict(given)
    if isinstance(sampler := given.get("sampler"), dict):
        changed["sampler"] = json.dumps(sampler)
    found = search_section(section, changed)
    if candidates > found.beam and found.sampler is None and "beam" not in given:
        found = search_section(found, {"beam": candidates})
    return found


SAMPLING = ("temperature", "top_k", "top_p", "epsilon")


def as_json(section: "SearchSection") -> dict[str, Any]:
    """A search as JSON has it."""
    return dict(json.loads(json.dumps(dataclasses.asdict(section))))


def _candidates(line: "Line") -> list[Candidate] | None:
    """The candidates of a text; None where the model's output is not a number."""
    if any(math.isnan(one.log_prob) for one in line.translations):
        return None
    return [Candidate(text=one.text, log_prob=one.log_prob, score=one.score) for one in line.translations]
