"""Loss, BLEU and chrF on a held-out set, shared out over the ranks under every ZeRO stage."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from configs import EvaluationSection
from data_pipeline.batch import collate
from data_pipeline.tokenizer import Tokenizer
from model import Objective, Transformer
from trainer.batches import to_device
from trainer.distributed import World
from trainer.engine import Engine
from trainer.scoring import Scorer, Scores
from trainer.translator import Translator, cut_batches

LOSS_BATCH_TOKENS = 4096
"""Padded target tokens of a batch that only the loss is computed of."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Evaluation:
    """The scores of one step, and the translations behind them."""

    loss: float
    """Label-smoothed cross-entropy per target token, in nats."""
    nll: float
    scores: Scores
    sources: Sequence[str]
    references: Sequence[str]
    hypotheses: Sequence[str]
    seconds: float

    def figures(self) -> dict[str, Any]:
        """For metrics.jsonl and TensorBoard."""
        return {
            "loss": self.loss,
            "perplexity": float(np.exp(min(self.nll, 700.0))),
            "bleu": self.scores.bleu,
            "bleu_signature": self.scores.bleu_signature,
            "chrf": self.scores.chrf,
            "chrf_signature": self.scores.chrf_signature,
            "pairs": len(self.references),
            "seconds": round(self.seconds, 2),
        }


class Evaluator:
    """Evaluates the weights of an engine on one held-out set.

    Every rank holds a plain copy of the model, filled parameter by parameter, and works through its share of the
    batches at its own pace: under ZeRO-3, ranks that decode different lengths with the sharded model would wait for one
    another for ever. Batches are cut without regard to the number of ranks, so the scores do not depend on it.
    """

    def __init__(
        self,
        section: EvaluationSection,
        *,
        build_model: Callable[[], Transformer],
        tokenizer: Tokenizer,
        scorer: Scorer,
        held_out: tuple[Sequence[str], Sequence[str]],
        label_smoothing: float,
        dtype: torch.dtype,
        world: World,
        folder: Path,
    ) -> None:
        self._section = section
        self._build_model = build_model
        self._tokenizer = tokenizer
        self._scorer = scorer
        self._sources, self._references = (side[: section.max_pairs] for side in held_out)
        self._label_smoothing = label_smoothing
        self._dtype = dtype
        self._world = world
        self._folder = folder
        self._model: Transformer | None = None

    def evaluate(self, engine: Engine, step: int) -> Evaluation:
        """Score the engine's weights; every rank gets the result, rank 0 writes the translations to `eval/`."""
        begin = time.monotonic()
        if self._model is None:
            self._model = self._build_model().to(self._world.device, self._dtype).eval()
        engine.copy_weights_to(self._model)
        loss, nll = self._losses(self._model)
        translator = Translator(self._model, self._tokenizer, self._section.search, self._world.device)
        share = translator.translate_share(self._sources, rank=self._world.rank, world_size=self._world.size)
        texts = {i: row[0].text for i, row in enumerate(share) if row is not None}
        everything = {i: text for part in self._world.gather(texts) for i, text in part.items()}
        hypotheses = [everything[i] for i in range(len(self._sources))]
        scores = self._scorer.score(hypotheses, self._references)
        if self._world.is_main:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"step-{step:08d}.hyp"
            path.write_text("".join(f"{h}\n" for h in hypotheses), encoding="utf-8")
        return Evaluation(
            loss=loss,
            nll=nll,
            scores=scores,
            sources=self._sources,
            references=self._references,
            hypotheses=hypotheses,
            seconds=time.monotonic() - begin,
        )

    @torch.inference_mode()
    def _losses(self, model: Transformer) -> tuple[float, float]:
        """Mean loss and negative log-likelihood per target token; pairs beyond the model's positions are left out."""
        objective = Objective(model, label_smoothing=self._label_smoothing).eval()
        sources = self._tokenizer.encode_source(list(self._sources))
        targets = self._tokenizer.encode_target(list(self._references))
        longest = model.max_positions - 1
        usable = [i for i in range(len(sources)) if max(len(sources[i]), len(targets[i])) <= longest]
        batches = cut_batches([max(len(sources[i]), len(targets[i])) + 1 for i in usable], LOSS_BATCH_TOKENS)
        loss_sum = nll_sum = num_tokens = 0.0
        for batch in batches[self._world.rank :: self._world.size]:
            rows = [usable[i] for i in batch]
            micro_batch = collate(
                0,
                np.array(rows),
                [np.array(sources[i], np.uint32) for i in rows],
                [np.array(targets[i], np.uint32) for i in rows],
                1,
            )
            device_batch = to_device(micro_batch, self._world.device)
            out = objective(device_batch.source, device_batch.target_input, device_batch.target_output)
            loss_sum += float(out.loss_sum)
            nll_sum += float(out.nll_sum)
            num_tokens += micro_batch.num_target_tokens
        loss_sum, nll_sum, num_tokens = self._world.sum_floats([loss_sum, nll_sum, num_tokens])
        return loss_sum / max(num_tokens, 1), nll_sum / max(num_tokens, 1)
