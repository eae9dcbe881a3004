"""A run's translations of sets: taken from those that were kept, else made and kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from configs.process.streams import tell
from model.search import Ensemble
from trainer.evaluation.sets import SetText
from trainer.inference.loading import TrainedModel, load_checkpoint
from trainer.inference.translation.translator import Translator
from trainer.ranks.device import choose_device
from trainer.ranks.precision import translating_precision
from zeromt.comparing.sets import Subject
from zeromt.evaluating.command import tags_of
from zeromt.evaluating.translation_cache import Hypotheses, Work, keep, read_kept
from zeromt.translating.engine import warn
from zeromt.translating.search import search_section


@dataclass(kw_only=True, slots=True, frozen=True)
class How:
    """How to translate what is not kept."""

    search: Mapping[str, Any]
    """Fields of the runs' search sections to replace."""
    raw: bool
    """Use the weights of the last update, not their moving average."""
    precision: str | None


def translations(subject: Subject, texts: Sequence[SetText], how: How) -> list[Hypotheses]:
    """A run's translations of each set; its model is only loaded if one has to be made.

    Raises:
        UserError: the model cannot be loaded, or knows none of a set's languages.
    """
    checkpoint, prepare = subject.checkpoint, subject.config.prepare
    section = search_section(subject.config.evaluation.search, how.search)
    precision = translating_precision(how.precision, subject.config.engine.precision, choose_device())
    weights = checkpoint.weights_kind(raw=how.raw)
    trained: TrainedModel | None = None
    found = []
    for text in texts:
        tags = tags_of(text, prepare, subject.tokenizer)
        work = Work(text=text, search=section, tags=tags, weights=weights, precision=precision)
        hypotheses = read_kept(checkpoint, work)
        if hypotheses is None:
            tell(f"zeromt: {subject.label}: translating {text.name}, {len(text.sources)} lines")
            trained = trained or load_checkpoint(checkpoint, raw=how.raw, precision=how.precision)
            translator = Translator(Ensemble([trained.model]), trained.tokenizer, section, trained.device, tags=tags)
            lines = [best[0].text for best in translator.translate(text.sources)]
            warn(translator.counts, trained.tokenizer, trained.config, trained.checkpoint)
            hypotheses = Hypotheses(lines=lines, file=keep(checkpoint, work, lines))
        found.append(hypotheses)
    return found
