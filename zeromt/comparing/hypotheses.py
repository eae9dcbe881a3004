"""The translations of a set by each run: taken from those that were kept, else decoded and kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from configs.process.streams import tell
from model.search import Ensemble
from trainer.evaluation.sets import SetText
from trainer.inference.loading import TrainedModel, load_checkpoint
from trainer.inference.translation.languages import LanguageTags, language_tags
from trainer.inference.translation.translator import Translator
from trainer.ranks.device import choose_device
from trainer.ranks.precision import translating_precision
from zeromt.comparing.sets import SharedSet
from zeromt.comparing.subjects import Subject
from zeromt.evaluating.translation_cache import Hypotheses, Work, keep, read_kept, read_of_training
from zeromt.translating.command import search_section, warn


@dataclass(kw_only=True, slots=True, frozen=True)
class How:
    """How to translate what is not kept."""

    search: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the runs' search sections to replace."""
    raw: bool = False
    """Use the weights of the last update, not their moving average."""
    precision: str | None = None


class Source:
    """A run's translations; its model is only loaded if a set has to be decoded."""

    def __init__(self, subject: Subject, how: How) -> None:
        assert subject.checkpoint is not None
        assert subject.tokenizer is not None
        self._subject, self._checkpoint, self._how = subject, subject.checkpoint, how
        self.section = search_section(subject.config.evaluation.search, how.search)
        self._precision = translating_precision(how.precision, subject.config.engine.precision, choose_device())
        self._tokenizer = subject.tokenizer
        self._trained: TrainedModel | None = None

    def translate(self, text: SetText) -> Hypotheses:
        """The translations of a set.

        Raises:
            UserError: the model cannot be loaded, or knows none of the set's languages.
        """
        tags = self._tags(text)
        weights = self._checkpoint.weights_kind(raw=self._how.raw)
        work = Work.of(text, self.section, tags, weights=weights, precision=self._precision)
        hypotheses = read_kept(self._checkpoint, work)
        if hypotheses is None and self._how.precision is None:
            hypotheses = read_of_training(self._checkpoint, self._subject.config, text, work)
        return hypotheses or self._decode(text, tags, work)

    def _tags(self, text: SetText) -> LanguageTags | None:
        prepare = self._subject.config.prepare
        if not (prepare.tag_both_sides and text.has_tags_of_both_sides):
            return None
        return language_tags(prepare, self._tokenizer, source=text.languages[0], target=text.languages[1])

    def _decode(self, text: SetText, tags: LanguageTags | None, work: Work) -> Hypotheses:
        tell(f"zeromt: {self._subject.label}: translating {text.name}, {len(text.sources)} lines")
        if self._trained is None:
            self._trained = load_checkpoint(self._checkpoint, raw=self._how.raw, precision=self._how.precision)
        trained = self._trained
        translator = Translator(Ensemble([trained.model]), trained.tokenizer, self.section, trained.device, tags=tags)
        lines = [best[0].text for best in translator.translate(text.sources)]
        warn(translator.counts, trained.tokenizer, trained.config, trained.checkpoint)
        file = keep(self._checkpoint, work, lines, name=text.name)
        if file is None:
            tell(
                f"zeromt: {self._subject.label}: the translations are not kept, since they cannot be written beside it"
            )
        return Hypotheses(lines=lines, file=file, origin="decoded")


def translations(subjects: Sequence[Subject], sets: Sequence[SharedSet], how: How) -> dict[str, list[Hypotheses]]:
    """The translations by set and run; one model is in memory at a time."""
    by_set: dict[str, list[Hypotheses]] = {one.name: [] for one in sets}
    for number, subject in enumerate(subjects):
        source = Source(subject, how)
        for one in sets:
            by_set[one.name].append(source.translate(one.texts[number]))
    return by_set
