"""Loss and scores on held-out sets, divided among the ranks under every ZeRO stage."""

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from configs import RunConfig
from configs.process.files.inside import write_text
from data_pipeline.stream.batch import Ragged, collate
from data_pipeline.tokenizer import Tokenizer
from model import Objective, Transformer
from trainer.checkpoint.model_files import build_model, place
from trainer.engines import Engine
from trainer.engines.layouts import to_device
from trainer.evaluation.scores import Evaluation
from trainer.evaluation.sets import HeldOutSet
from trainer.inference.translation.languages import LanguageTags, encode_source, encode_target
from trainer.inference.translation.translator import Interrupted, Translator, cut_batches
from trainer.metrics.scoring import Score
from trainer.ranks.distributed import World
from trainer.ranks.precision import DTYPES, Precision
from trainer.runs.layout import hypotheses_file

log = logging.getLogger(__name__)

LOSS_BATCH_TOKENS = 4096
"""Padded target tokens of a batch for which only the loss is computed."""
_Part = tuple[list[float], list[tuple[int, str]]]
"""One rank's sums over its pairs (loss, loss without smoothing, target tokens), and its translations by line."""


class Evaluator:
    """Evaluates the weights of an engine on held-out sets.

    Every rank fills a plain copy of the model parameter by parameter, and works through its part of the batches at its
    own pace: under ZeRO-3, ranks that decoded different lengths with the sharded model would deadlock. The batches, and
    so the scores, do not depend on the number of ranks.
    """

    def __init__(
        self,
        config: RunConfig,
        tokenizer: Tokenizer,
        held_out: Sequence[HeldOutSet],
        world: World,
        precision: Precision,
        stop_requested: Callable[[], bool],
    ) -> None:
        self._config = config
        self._section = config.evaluation
        self._tokenizer = tokenizer
        self.held_out = held_out
        """The sets to evaluate on."""
        self._loss = config.loss.build()
        self._world = world
        self._dtype = DTYPES[precision]
        self._stop_requested = stop_requested
        self._model: Transformer | None = None

    def prepare(self) -> None:
        """Allocate the plain copy of the model now, instead of at the first evaluation."""
        if self._model is None and self.held_out:
            model = build_model(self._config.model, self._tokenizer, seed=self._config.seed)
            self._model = place(model, self._world.device, self._dtype, self._config.engine.kernels).eval()

    def evaluate(self, engine: Engine, step: int) -> Evaluation | None:
        """Score the engine's weights; every rank gets the result, rank 0 writes the translations to `eval/`.

        They are `step-NNNNNNNN.hyp`, or with several sets `step-NNNNNNNN.NAME.hyp`. None if a rank was asked to stop.
        """
        self.prepare()
        assert self._model is not None
        engine.copy_weights_to(self._model)
        parts = {}
        for held_out in self.held_out:
            name = held_out.name if len(self.held_out) > 1 else None
            path = hypotheses_file(Path(self._config.folder), step, name)
            evaluation = self._evaluate(self._model, held_out, path)
            if evaluation is None:
                return None
            parts[held_out.name] = evaluation
        return Evaluation.mean(parts) if len(parts) > 1 else next(iter(parts.values()))

    def _evaluate(self, model: Transformer, held_out: HeldOutSet, path: Path) -> Evaluation | None:
        """Score one set."""
        begin = time.monotonic()
        sources = held_out.sources[: self._section.max_pairs]
        all_references = [lines[: self._section.max_pairs] for lines in held_out.references]
        references = all_references[0]
        try:
            mine: _Part | None = self._score_part(model, sources, references, held_out.tags)
        except Interrupted:
            mine = None
        parts: list[_Part | None] = self._world.gather(mine)
        whole = [part for part in parts if part is not None]
        if len(whole) < len(parts):
            return None
        loss_sum, nll_sum, num_tokens = (sum(column) for column in zip(*(sums for sums, _ in whole), strict=True))
        texts = dict(itertools.chain(*(texts for _, texts in whole)))
        hypotheses = [texts[i] for i in range(len(sources))]
        scores = held_out.scorer.score(sources, hypotheses, all_references) if self._world.is_main else None
        if self._world.is_main:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_text(path, "".join(f"{h}\n" for h in hypotheses))
            except OSError as error:
                log.warning("%s cannot be written; training continues: %s", path, error)
        return Evaluation(
            loss=loss_sum / max(num_tokens, 1),
            nll=nll_sum / max(num_tokens, 1),
            scores=self._world.from_main(
                scores, dict[str, Score]
            ),  # one for all ranks, even if a metric is not deterministic
            sources=sources,
            references=references,
            hypotheses=hypotheses,
            seconds=time.monotonic() - begin,
            role=held_out.role,
        )

    @torch.inference_mode()
    def _score_part(
        self,
        model: Transformer,
        source_lines: Sequence[str],
        reference_lines: Sequence[str],
        tags: LanguageTags | None,
    ) -> _Part:
        """This rank's part; pairs longer than the model's positions do not count in the loss.

        Raises:
            Interrupted: a stop was requested.
        """
        objective = Objective(model, self._loss).eval()
        sources = encode_source(self._tokenizer, source_lines, tags)
        targets = encode_target(self._tokenizer, reference_lines, tags)
        widths = {i: max(len(source), len(targets[i])) + 1 for i, source in enumerate(sources)}
        usable = {i: width for i, width in widths.items() if width <= model.max_positions}
        sums = np.zeros(3)
        for rows in cut_batches(usable, LOSS_BATCH_TOKENS)[self._world.rank :: self._world.size]:
            if self._stop_requested():
                raise Interrupted
            micro_batch = collate(
                0,
                np.array(rows),
                Ragged.of([sources[i] for i in rows]),
                Ragged.of([targets[i] for i in rows]),
                1,
            )
            batch = to_device(micro_batch, self._world.device)
            out = objective(batch.source, batch.target_input, batch.target_output)
            sums += [float(out.loss_sum), float(out.nll_sum), micro_batch.num_target_tokens]
        translator = Translator(model, self._tokenizer, self._section.search, self._world.device, tags=tags)
        translations = translator.translate_part(
            source_lines,
            rank=self._world.rank,
            world_size=self._world.size,
            stop_requested=self._stop_requested,
        )
        return sums.tolist(), [(i, row[0].text) for i, row in enumerate(translations) if row is not None]
