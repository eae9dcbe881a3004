"""`zeromt translate --placeholders`: parts of lines are copied by way of placeholders, as the run was taught to."""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from typing_extensions import override

from configs import RunConfig, UserError
from configs.process.streams import tell
from data_pipeline.stream.modifiers.anchors import is_number, replaced
from data_pipeline.stream.modifiers.placeholders import Placeholders
from data_pipeline.tag_pieces import cut_tag
from trainer.inference.translation.translator import OnLines
from zeromt.translating.lines import but_pauses
from zeromt.translating.worker import Answer, Chunk, Line, Work


def with_copies(work: Work, pattern: re.Pattern[str] | None, config: RunConfig) -> Work:
    """A translator that gets lines with placeholders, and whose translations have what these stand for.

    At the end it says on stderr how many of them the best translations lack, if any.

    Args:
        work: the translator without.
        pattern: finds what is to be copied; None for nothing.
        config: of a run that was trained with placeholders.

    Raises:
        UserError: it was not.
    """
    if pattern is None:
        return work
    modifier = _trained_with(config)

    def copying(chunks: Iterable[Chunk | None], on_lines: OnLines) -> Iterator[Answer]:
        copies = Copies(pattern, modifier)
        for answer in work(copies.put_in(chunks), on_lines):
            yield copies.take_out(answer)
        if copies.num_missing:
            lost = f"{copies.num_missing} of {copies.num_copied} placeholders are missing in the translations"
            tell(f"zeromt: --placeholders: {lost}")

    return copying


class Copies:
    """What is copied of the lines that are being translated.

    Lines with placeholders of their own are left as they are, as is what is beyond the most that the run has seen.
    """

    @override
    def __init__(self, pattern: re.Pattern[str], modifier: Placeholders) -> None:
        self._pattern, self._modifier = pattern, modifier
        self._waiting: deque[dict[str, str]] = deque()
        """What the placeholders of each line stand for, until its translation is there."""
        self.num_copied = self.num_missing = 0
        """Placeholders of translated lines, and those of them that the best translations lack."""

    def put_in(self, chunks: Iterable[Chunk | None]) -> Iterator[Chunk | None]:
        """The chunks with placeholders in their sources."""
        return but_pauses(lambda chunk: replace(chunk, sources=[self._put_in(line) for line in chunk.sources]), chunks)

    def take_out(self, answer: Answer) -> Answer:
        """The answer to the next of these chunks, with what the placeholders stand for."""
        return replace(answer, lines=[self._take_out(line, self._waiting.popleft()) for line in answer.lines])

    def _take_out(self, line: Line | None, values: dict[str, str]) -> Line | None:
        if line is None or not values:
            return line
        placeholder = self._modifier.placeholder
        texts = [translation.text for translation in line.translations]
        self.num_copied += len(values)
        self.num_missing += len(values.keys() - placeholder.findall(texts[0]))
        back = [placeholder.sub(lambda match: values.get(match[0], match[0]), text) for text in texts]
        return replace(line, translations=[replace(t, text=b) for t, b in zip(line.translations, back, strict=True)])

    def _put_in(self, line: str) -> str:
        tag, text = cut_tag(line)
        has_own = self._modifier.placeholder.search(text)
        matches = [] if has_own else [match for match in self._pattern.finditer(text) if match[0]]
        of = self._modifier.of
        names = self._modifier.numbered(
            [of == "numbers" or (of == "both" and is_number(match[0])) for match in matches]
        )
        chosen = [(match, name) for match, name in zip(matches, names, strict=True) if name is not None]
        self._waiting.append({name: match[0] for match, name in chosen})
        return tag + replaced(text, [(match.span(), name) for match, name in chosen])


def _trained_with(config: RunConfig) -> Placeholders:
    """The modifier that taught a run to copy placeholders.

    Raises:
        UserError: it had none.
    """
    lists = [config.stream.augment, *(phase.augment or [] for phase in config.phases)]
    for modifier in (modifier for modifiers in lists for modifier in modifiers):
        if isinstance(modifier, Placeholders) and modifier.probability > 0:
            return modifier
    raise UserError(
        "--placeholders: this run has not learnt to copy any; train with {kind: placeholders} in stream.augment, or "
        "leave it out"
    )
