"""A trained model in this process: `zeromt translate` and `zeromt evaluate` as methods."""

import dataclasses
import operator
import threading
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import override

from configs import SearchSection, UserError
from configs.load import parse_tree
from configs.plugins import load_named
from configs.process.files import expand
from configs.process.text import visible_name
from trainer.checkpoint.format import Checkpoint
from trainer.inference.loading import TrainedModel, with_checkpoints
from trainer.inference.translation.languages import language_tags
from trainer.inference.translation.sources import SourceCounts
from trainer.inference.translation.translator import Translation
from zeromt.translator.engine import Engine
from zeromt.translator.scored import Wanted, score_set, set_of_lines
from zeromt.translator.worker import Chunk, Options, TranslationSettings, Worker

T = TypeVar("T")


def load(
    path: str | Path,
    *,
    raw_weights: bool = False,
    precision: str | None = None,
    plugins: Iterable[str | Path] = (),
) -> "LoadedModel":
    """Load the model of a run or of a checkpoint, ready to translate.

    Args:
        path: a run's folder, whose newest whole checkpoint is taken, or a checkpoint; `~` is the home folder.
        raw_weights: use the weights themselves, even if there is a moving average.
        precision: auto, fp32, bf16 or fp16; None for fp32 on a CPU and the run's on a GPU.
        plugins: Python files with components that the run was trained with; they are run. No run names them by itself.

    Raises:
        UserError: there is no whole checkpoint, or a plugin is missing or differs; the message is one line.
    """
    load_named([str(plugin) for plugin in _as_list(plugins, (str, Path), "plugins")])
    options = Options(run=expand(str(path)), raw_weights=raw_weights, precision=precision)

    def loaded(checkpoints: Sequence[Checkpoint]) -> LoadedModel:
        engine = Engine(options, checkpoints)
        worker = Worker([checkpoint.folder for checkpoint in checkpoints], options)
        engine.use(worker)
        fields = {field.name: getattr(worker.trained, field.name) for field in dataclasses.fields(TrainedModel)}
        return LoadedModel(**fields, engine=engine)

    return with_checkpoints([options.run], loaded)


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class LoadedModel(TrainedModel):
    """A model with its tokenizer. Thread-safe: threads take turns.

    It translates as `zeromt translate` does. A line that is longer than the model's positions loses its end, with a
    warning (`warnings`); of other odd sources, too.

    Fields of the configuration's `evaluation.search` (`beam=4`, `length_penalty=0.6`, `no_repeat_ngram=3` ...) are
    keyword arguments of every method that translates; what is not given is the run's.
    """

    engine: Engine = dataclasses.field(repr=False, compare=False)
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False, compare=False)
    """Held while the model computes."""

    @override
    def __repr__(self) -> str:
        """One line, without the module's layers."""
        prepare, numbers = self.config.prepare, sum(parameter.numel() for parameter in self.model.parameters())
        languages = f"{prepare.source_language or '?'} to {prepare.target_language or '?'}"
        origin = f"{self.config.name} at update {self.checkpoint.manifest['step']:,}"
        said = f"{origin}, {languages}, {numbers:,} parameters, {self.precision} on {self.device}"
        return visible_name(f"<LoadedModel {said}>")

    def translate(
        self,
        lines: Iterable[str],
        *,
        source_language: str | None = None,
        target_language: str | None = None,
        **search: Any,
    ) -> list[str]:
        """The best translation of each line, in order; the translation of an empty line is empty.

        Args:
            lines: sentences.
            source_language, target_language: of models with tags on both sides; the run's unless given.
            search: fields of `evaluation.search`, such as `beam`; 1 is greedy.

        Raises:
            TypeError: a string instead of a list, or an item that is not a string.
            UserError: a field of the search or a language is wrong.
        """
        languages = (source_language, target_language)
        return [best.text for [best] in self._translate(lines, 1, languages, search)]

    def n_best(
        self,
        lines: Iterable[str],
        number: int,
        *,
        source_language: str | None = None,
        target_language: str | None = None,
        **search: Any,
    ) -> list[list[Translation]]:
        """Several translations of each line, best first, each with `text`, `log_prob` and `score`.

        Args:
            lines: sentences.
            number: of translations per line; at most the beam, whose default is this; with a sampler, the number of
                samples.
            source_language, target_language, search: see `translate`.

        Raises:
            TypeError, UserError: see `translate`; or `number` is more than the beam.
        """
        if self.config.evaluation.search.sampler is None and "sampler" not in search:
            search.setdefault("beam", max(number, self.config.evaluation.search.beam))
        return self._translate(lines, number, (source_language, target_language), search)

    def score(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        *,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> list[Translation]:
        """Score given translations: each with its log-probability, and this over the length penalty.

        NaN for one that is longer than the model's positions.

        Raises:
            TypeError: a string instead of a list, or an item that is not a string.
            UserError: their number differs from the sources', or a language is wrong.
        """
        lines, given = _as_list(sources, str, "sources"), _as_list(targets, str, "targets")
        if len(lines) != len(given):
            raise UserError(f"targets: {len(given)} for {len(lines)} sources; give one for each")
        settings = self._settings(self.config.evaluation.search, (source_language, target_language))
        return [one for [one] in self._run(Chunk(sources=lines, targets=given), settings)]

    def evaluate(
        self,
        sources: Iterable[str],
        references: Iterable[str] | Iterable[Sequence[str]],
        *,
        metrics: Iterable[str] | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
        **search: Any,
    ) -> dict[str, Any]:
        """Translate and score; each figure comes with its signature, such as `bleu` and `bleu_signature`.

        `truncated` is the number of sources that were cut at the model's positions.

        Args:
            sources: sentences.
            references: one for each source; or several such lists.
            metrics: such as bleu, chrf, ter or "{kind: chrf, word_order: 2}"; the run's unless given.
            source_language, target_language, search: see `translate`.

        Raises:
            TypeError: a string instead of a list, or an item that is not a string.
            UserError: their numbers differ, there are none, or an option is wrong.
        """
        lines = _as_list(sources, str, "sources")
        columns = _columns(references)
        for column in columns:
            if len(column) != len(lines):
                raise UserError(f"references: {len(column)} for {len(lines)} sources; give one for each")
        if not lines:
            raise UserError("sources: none; give at least one")
        named = None if metrics is None else _as_list(metrics, str, "metrics")
        wanted = Wanted.of(named, None)
        languages = (source_language, target_language)
        text = set_of_lines(self.engine, lines, columns, languages)
        settings = self._settings(self._search(search), languages)
        with self.lock:
            done = score_set(self.engine, text, wanted, settings)
            said = self.engine.warnings()
        _warn(said, depth=1)
        return done.figures

    def _translate(
        self,
        lines: Iterable[str],
        number: int,
        languages: tuple[str | None, str | None],
        search: dict[str, Any],
    ) -> list[list[Translation]]:
        given, number = _as_list(lines, str, "lines"), operator.index(number)
        section = self._search(search)
        if number < 1 or (section.sampler is None and number > section.beam):
            raise UserError(f"number: {number} with beam={section.beam}; allowed is 1 to the beam")
        return self._run(Chunk(sources=given), self._settings(section, languages, number), depth=3)

    def _run(self, chunk: Chunk, settings: TranslationSettings, *, depth: int = 2) -> list[list[Translation]]:
        """Translate or score, and warn of odd sources at the caller's line, `depth` methods of this class above."""
        with self.lock:
            self.engine.counts = SourceCounts()
            [translations] = self.engine.translate([chunk], settings)
            said = self.engine.warnings()
        _warn(said, depth=depth)
        return translations

    def _search(self, search: dict[str, Any]) -> SearchSection:
        """The run's search section, overridden by the given fields."""
        own = self.config.evaluation.search
        given = {name: value.item() if hasattr(value, "item") else value for name, value in search.items()}  # numpy's
        if given.get("sampler") is not None:
            given = {"beam": 1, **given}
        fields = {field.name: getattr(own, field.name) for field in dataclasses.fields(own) if field.name != "sampler"}
        typed: SearchSection = parse_tree({**fields, **given}, SearchSection)  # reports all errors of the fields
        section = dataclasses.replace(own, **{name: getattr(typed, name) for name in given})
        if problems := list(section.problems()):
            raise UserError("\n".join(problems))
        return section

    def _settings(
        self, section: SearchSection, languages: tuple[str | None, str | None], number: int = 1
    ) -> TranslationSettings:
        source, target = languages
        tags = language_tags(self.config.prepare, self.tokenizer, source=source, target=target)
        return TranslationSettings(section=section, number=number, tags=tags)


def _warn(warnings_: Iterable[str], *, depth: int) -> None:
    for one in warnings_:
        warnings.warn(one, stacklevel=depth + 2)


def _columns(references: Iterable[str] | Iterable[Sequence[str]]) -> list[list[str]]:
    """One list for each reference translation of the set."""
    items: list[Any] = _as_list(references, (str, Sequence), "references")
    if items and all(not isinstance(item, str) for item in items):
        return [_as_list(item, str, f"references[{number}]") for number, item in enumerate(items)]
    return [_as_list(items, str, "references")]


def _as_list(given: Iterable[T], kind: type | tuple[type, ...], what: str) -> list[T]:
    """The argument as a list.

    A string is refused, as Python would treat it as a list of letters.

    Raises:
        TypeError: it is a string or not iterable, or an item has the wrong type.
    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    names = " or ".join(one.__name__ for one in kinds)
    if isinstance(given, str | bytes | Path) or not isinstance(given, Iterable):
        raise TypeError(f"{what}: a {type(given).__name__}; give a list of {names}: [{given!r:.60}]")
    items = list(given)
    for number, item in enumerate(items):
        if not isinstance(item, kinds):
            raise TypeError(f"{what}[{number}]: a {type(item).__name__}; give {names}")
    return items
