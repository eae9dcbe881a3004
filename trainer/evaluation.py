"""Loss, BLEU and chrF on held-out sets, shared out over the ranks under every ZeRO stage."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from configs import EvaluationSection
from data_pipeline.stream.batch import Ragged, collate
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
class HeldOutSet:
    """Pairs to evaluate on."""

    name: str
    sources: Sequence[str]
    references: Sequence[str]
    scorer: Scorer


@dataclass(kw_only=True, slots=True, frozen=True)
class Evaluation:
    """The scores of one step, and the translations behind them: of one set, or the means over several."""

    loss: float
    """Label-smoothed cross-entropy per target token, in nats."""
    nll: float
    scores: Scores
    sources: Sequence[str]
    references: Sequence[str]
    hypotheses: Sequence[str]
    seconds: float
    parts: Mapping[str, "Evaluation"] = field(default_factory=dict)
    """By name, where there are several sets."""

    @classmethod
    def mean(cls, parts: Mapping[str, "Evaluation"]) -> "Evaluation":
        """The means over several sets, each counting the same whatever its size; their translations in turns."""
        each = list(parts.values())

        def mean_of(numbers: Sequence[float]) -> float:
            return float(np.mean(numbers))

        return cls(
            loss=mean_of([e.loss for e in each]),
            nll=mean_of([e.nll for e in each]),
            scores=Scores(
                bleu=mean_of([e.scores.bleu for e in each]),
                bleu_signature=_together([e.scores.bleu_signature for e in each]),
                chrf=mean_of([e.scores.chrf for e in each]),
                chrf_signature=_together([e.scores.chrf_signature for e in each]),
            ),
            sources=_in_turns([e.sources for e in each]),
            references=_in_turns([e.references for e in each]),
            hypotheses=_in_turns([e.hypotheses for e in each]),
            seconds=sum(e.seconds for e in each),
            parts=parts,
        )

    def figures(self) -> dict[str, Any]:
        """For metrics.jsonl and TensorBoard; those of a part are named such as `bleu/NAME`."""
        of_parts = {
            f"{figure}/{name}": value
            for name, part in self.parts.items()
            for figure, value in (("loss", part.loss), ("bleu", part.scores.bleu), ("chrf", part.scores.chrf))
        }
        return {
            "loss": self.loss,
            "perplexity": float(np.exp(min(self.nll, 700.0))),
            "bleu": self.scores.bleu,
            "bleu_signature": self.scores.bleu_signature,
            "chrf": self.scores.chrf,
            "chrf_signature": self.scores.chrf_signature,
            "pairs": len(self.references),
            "seconds": round(self.seconds, 2),
            **of_parts,
        }


class Evaluator:
    """Evaluates the weights of an engine on held-out sets.

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
        held_out: Sequence[HeldOutSet],
        label_smoothing: float,
        dtype: torch.dtype,
        world: World,
        folder: Path,
    ) -> None:
        self._section = section
        self._build_model = build_model
        self._tokenizer = tokenizer
        self._held_out = held_out
        self._label_smoothing = label_smoothing
        self._dtype = dtype
        self._world = world
        self._folder = folder
        self._model: Transformer | None = None

    def evaluate(self, engine: Engine, step: int) -> Evaluation:
        """Score the engine's weights; every rank gets the result, rank 0 writes the translations to `eval/`.

        They are `step-NNNNNNNN.hyp`, or of several sets `step-NNNNNNNN.NAME.hyp`.
        """
        if self._model is None:
            self._model = self._build_model().to(self._world.device, self._dtype).eval()
        engine.copy_weights_to(self._model)
        if len(self._held_out) == 1:
            return self._evaluate(self._model, self._held_out[0], self._folder / f"step-{step:08d}.hyp")
        return Evaluation.mean(
            {
                held_out.name: self._evaluate(
                    self._model, held_out, self._folder / f"step-{step:08d}.{held_out.name}.hyp"
                )
                for held_out in self._held_out
            }
        )

    def _evaluate(self, model: Transformer, held_out: HeldOutSet, path: Path) -> Evaluation:
        """Score one set."""
        begin = time.monotonic()
        sources = held_out.sources[: self._section.max_pairs]
        references = held_out.references[: self._section.max_pairs]
        loss, nll = self._losses(model, sources, references)
        translator = Translator(model, self._tokenizer, self._section.search, self._world.device)
        share = translator.translate_share(sources, rank=self._world.rank, world_size=self._world.size)
        texts = {i: row[0].text for i, row in enumerate(share) if row is not None}
        everything = {i: text for part in self._world.gather(texts) for i, text in part.items()}
        hypotheses = [everything[i] for i in range(len(sources))]
        scores = held_out.scorer.score(hypotheses, references)
        if self._world.is_main:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{h}\n" for h in hypotheses), encoding="utf-8")
        return Evaluation(
            loss=loss,
            nll=nll,
            scores=scores,
            sources=sources,
            references=references,
            hypotheses=hypotheses,
            seconds=time.monotonic() - begin,
        )

    @torch.inference_mode()
    def _losses(
        self, model: Transformer, source_lines: Sequence[str], reference_lines: Sequence[str]
    ) -> tuple[float, float]:
        """Mean loss and negative log-likelihood per target token; pairs beyond the model's positions are left out."""
        objective = Objective(model, label_smoothing=self._label_smoothing).eval()
        sources = self._tokenizer.encode_source(list(source_lines))
        targets = self._tokenizer.encode_target(list(reference_lines))
        longest = model.max_positions - 1
        usable = [i for i in range(len(sources)) if max(len(sources[i]), len(targets[i])) <= longest]
        batches = cut_batches([max(len(sources[i]), len(targets[i])) + 1 for i in usable], LOSS_BATCH_TOKENS)
        loss_sum = nll_sum = num_tokens = 0.0
        for batch in batches[self._world.rank :: self._world.size]:
            rows = [usable[i] for i in batch]
            micro_batch = collate(
                0,
                np.array(rows),
                Ragged.of([sources[i] for i in rows]),
                Ragged.of([targets[i] for i in rows]),
                1,
            )
            device_batch = to_device(micro_batch, self._world.device)
            out = objective(device_batch.source, device_batch.target_input, device_batch.target_output)
            loss_sum += float(out.loss_sum)
            nll_sum += float(out.nll_sum)
            num_tokens += micro_batch.num_target_tokens
        loss_sum, nll_sum, num_tokens = self._world.sum_floats([loss_sum, nll_sum, num_tokens])
        return loss_sum / max(num_tokens, 1), nll_sum / max(num_tokens, 1)


def _together(signatures: Sequence[str]) -> str:
    """What sets that were scored in several ways were scored with."""
    return "; ".join(dict.fromkeys(signatures))


def _in_turns(texts: Sequence[Sequence[str]]) -> list[str]:
    """The first of each, the second of each, and so on: the first few stand for all."""
    rows: Iterator[tuple[str | None, ...]] = itertools.zip_longest(*texts)
    return [text for row in rows for text in row if text is not None]
