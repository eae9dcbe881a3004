"""A run, an ensemble of runs, or a run's export, that translates chunks of lines."""

import contextlib
import dataclasses
import json
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from configs import UserError, load_saved
from configs.components import TextModifier
from configs.process.streams import tell
from data_pipeline.tokenizer import Tokenizer, cut_tag
from trainer.checkpoint.format import Checkpoint
from trainer.inference.loading import check_same_tokenizer, with_checkpoints
from trainer.inference.translation.languages import encode_source, language_tags
from trainer.inference.translation.sources import SourceCounts, expects_tag
from trainer.inference.translation.translator import OnLines, Translation, do_nothing
from trainer.ranks.device import choose_device
from trainer.ranks.precision import translating_precision
from trainer.ranks.process import tune_process
from trainer.runs.layout import CONFIG, model_identity
from zeromt.translator.mbr import ranked
from zeromt.translator.pool import Pool
from zeromt.translator.search import search_section
from zeromt.translator.splitting import joined, parts_of
from zeromt.translator.worker import Answer, Chunk, Options, Task, TranslationSettings, Work, Worker

_NEXT_PART = 1 << 44
"""Between the seeds of the parts of a line that is split; more than lines of any corpus."""

Undo = Callable[[str], str]


def started(stack: contextlib.ExitStack, options: Options) -> "Engine":
    """An engine that is ready to translate, by the newest checkpoints.

    Raises:
        UserError: a run or an option is wrong.
    """

    def start(checkpoints: Sequence[Checkpoint]) -> Engine:
        engine = Engine(options, checkpoints)
        engine.start(stack)
        return engine

    return with_checkpoints((options.run, *options.ensemble), start)


class Engine:
    """What translates; its models are loaded by `start`.

    Args:
        options: what is wanted.
        checkpoints: of the runs, verified.
        splits: split a line that is longer than the model holds at the ends of its sentences; otherwise it is cut.

    Raises:
        UserError: the options do not go together.
    """

    def __init__(self, options: Options, checkpoints: Sequence[Checkpoint], *, splits: bool = False) -> None:
        self.options, self.checkpoints, self._splits = options, checkpoints, splits
        check_same_tokenizer([checkpoint.folder for checkpoint in checkpoints])
        configs = [load_saved(checkpoint.folder / CONFIG) for checkpoint in checkpoints]
        self.config = configs[0]
        self.tokenizer = Tokenizer.load(checkpoints[0].folder)
        self.max_positions = min(config.model.max_positions for config in configs)
        self.section = search_section(self.config.evaluation.search, options.search, options.candidates)
        self._work: Work
        self.counts = SourceCounts()
        """Counts over all sources so far."""
        taught = {one.kind: one for stream in self.config.streams for one in stream.augment if one.probability > 0}
        self.modifiers = [one for one in taught.values() if isinstance(one, TextModifier)]
        if options.quantization is not None and (options.ensemble or self.section.sampler is not None):
            what = "--ensemble" if options.ensemble else "a sampler"
            raise UserError(f"--quantization: {options.quantization} with {what}; allowed is one run, and no sampler")

    @cached_property
    def settings(self) -> TranslationSettings:
        """How lines are translated unless it is said otherwise.

        Raises:
            UserError: the model does not know the languages.
        """
        source, target = self.options.source_language, self.options.target_language
        tags = language_tags(self.config.prepare, self.tokenizer, source=source, target=target)
        return TranslationSettings(section=self.section, number=self.options.candidates, tags=tags)

    @property
    def precision(self) -> str:
        """The number format of the weights."""
        asked, trained_with = self.options.precision, self.config.engine.precision
        return self.options.quantization or translating_precision(asked, trained_with, choose_device())

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides the translations, as JSON: hashes of models, and settings; no paths."""
        own = dataclasses.asdict(self.options)
        for name in ("run", "ensemble", "search", "processes"):
            del own[name]
        models = [model_identity(checkpoint.folder) for checkpoint in self.checkpoints]
        own |= {"search": dataclasses.asdict(self.section), "models": models}
        plain: dict[str, Any] = json.loads(json.dumps(own))
        return plain

    def start(self, stack: contextlib.ExitStack) -> None:
        """Load the models, in this process or several, which the stack ends.

        Raises:
            UserError: they cannot be loaded.
        """
        tune_process()
        stack.callback(lambda: vars(self).pop("_work", None))  # and with it the models' memory
        folders, wanted = [checkpoint.folder for checkpoint in self.checkpoints], self.options.processes
        if self.options.quantization is not None:
            self.use(_ExportWorker(stack, self))
            return
        number = wanted if wanted is not None else torch.cuda.device_count() or len(os.sched_getaffinity(0))
        if number == 1:
            self.use(Worker(folders, self.options))
            return
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
        gpus = visible.split(",") if torch.cuda.is_available() else [None]
        pool = Pool(folders, self.options, [gpus[i % len(gpus)] for i in range(number)])
        stack.callback(pool.close)
        self._work = pool.answers

    def use(self, worker: "Worker | _ExportWorker") -> None:
        """Translate in this process."""
        self._work = lambda tasks, on_lines: (worker.do(task, on_lines) for task in tasks if task is not None)

    def translate(
        self,
        chunks: Iterable[Chunk | None],
        settings: TranslationSettings | None = None,
        on_lines: OnLines = do_nothing,
    ) -> Iterator[list[list[Translation]]]:
        """The translations of the lines of each chunk, in order, best first; none where the model cannot hold a line.

        Args:
            chunks: taken a few ahead; a None among them asks for all before it.
            settings: as the options say, unless given.
            on_lines: called with the number of lines just done.

        Raises:
            UserError: a line is wrong.
        """
        chosen = settings or self.settings
        waiting: deque[tuple[list[list[str]], list[list[Undo]]]] = deque()

        def prepared(chunk: Chunk) -> Task:
            by_line = [self._parts(line, chosen) for line in chunk.sources]
            texts: list[str] = []
            keys: list[int] = []
            undo: list[list[Undo]] = []
            for key, parts in enumerate(by_line, start=chunk.first):
                for number, text in enumerate(parts):
                    modifies = chosen.modifies and chunk.targets is None
                    changed, undoing = self._modified(text) if modifies else (text, [])
                    texts.append(changed)
                    undo.append(undoing)
                    keys.append(key + number * _NEXT_PART)
            waiting.append((by_line, undo))
            return Task(sources=texts, targets=chunk.targets, keys=keys, settings=chosen)

        given = (None if chunk is None else prepared(chunk) for chunk in chunks)
        for answer in self._work(given, on_lines):
            self.counts.add(answer.counts)
            by_line, undo = waiting.popleft()
            pairs = zip(answer.lines, undo, strict=True)
            translations = (_undone(line, undoing) for line, undoing in pairs if line is not None)
            yield [self._of_line([next(translations) for _ in parts]) for parts in by_line]

    def warnings(self) -> list[str]:
        """Warnings about the sources so far, one line each."""
        is_expected = expects_tag(self.checkpoints[0], self.config)
        return self.counts.warnings(self.tokenizer, self.config.model.max_positions, expects_tag=is_expected)

    def warn(self) -> None:
        """Print them to stderr."""
        for line in self.warnings():
            tell(f"zeromt: {line}")

    def _parts(self, line: str, settings: TranslationSettings) -> list[str]:
        """The texts to translate instead of a line."""
        if not (self._splits or self.options.paragraphs):
            return [line]

        def fits(text: str) -> bool:
            return not self._splits or len(encode_source(self.tokenizer, [text], settings.tags)[0]) < self.max_positions

        tag = line[: len(line) - len(self.tokenizer.cut_tag(line)[1])]
        return parts_of(line, tag, fits, paragraphs=self.options.paragraphs)

    def _modified(self, line: str) -> tuple[str, list[Undo]]:
        """The line as the run's modifiers want it, and what undoes that."""
        tag, text = cut_tag(line)
        undo: list[Undo] = []
        for modifier in self.modifiers:
            if (modified := modifier.to_translate(text)) is not None:
                text = modified[0]
                undo.insert(0, modified[1])
        return tag + text, undo

    def _of_line(self, parts: Sequence[Sequence[Translation]]) -> list[Translation]:
        candidates = joined(parts)
        return candidates if self.options.mbr is None else ranked(candidates, self.options.mbr)


class _ExportWorker:
    """Translates by a run's export, which is made here and lost at the end."""

    def __init__(self, stack: contextlib.ExitStack, engine: Engine) -> None:
        from zeromt.formats import as_ctranslate2  # a tool of its own, which little of this needs
        from zeromt.formats.check import find_text, load_exact, make_sample

        options, self._tokenizer, self._longest = engine.options, engine.tokenizer, engine.max_positions
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zeromt-")))
        trained = load_exact(engine.checkpoints[0].folder, raw=options.raw_weights)
        sample = make_sample(trained.model, trained.tokenizer, find_text(trained.config, None, None))
        as_ctranslate2.export(trained, folder, sample, None, quantization=options.quantization)
        workers = options.processes or len(os.sched_getaffinity(0))
        self._exported = as_ctranslate2.Exported(
            folder, self._tokenizer, engine.section, max_positions=self._longest, workers=workers
        )

    def do(self, task: Task, on_lines: OnLines) -> Answer:
        counts = SourceCounts()
        rows = encode_source(self._tokenizer, task.sources, task.settings.tags)
        counts.note(self._tokenizer, task.sources, rows, self._longest - 1)
        lines: list[list[Translation] | None] = []
        for candidates in self._exported.candidates(task.sources, task.settings.number, tags=task.settings.tags):
            lines.append([Translation(text=text, log_prob=score, score=score, ids=[]) for text, score in candidates])
        on_lines(len(lines))
        return Answer(lines=lines, counts=counts)


def _undone(translations: Sequence[Translation], undo: Sequence[Undo]) -> list[Translation]:
    restored = list(translations)
    for one in undo:
        restored = [dataclasses.replace(translation, text=one(translation.text)) for translation in restored]
    return restored
