"""Trains Marian of Transformers with Seq2SeqTrainer, the baseline for training on CPUs and GPUs."""

import random
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.device.plain_loop import peak_gib, wait
from benchmarks.training.plain_loop import Pair, batches, pad, read_pairs
from benchmarks.training.plain_model import BOS, EOS, PAD

IGNORED = -100
"""The label that Transformers' losses ignore."""


def train(
    *,
    pieces: str,
    sizes: dict[str, Any],
    updates: int,
    warm_up: int,
    budget: int,
    peak: float,
    warmup_updates: int,
    threads: int | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    is_exact: bool = False,
) -> dict[str, Any]:
    """Train, and time the updates after the first `warm_up`. cuDNN's attention is off: it plans for every new shape.

    Args:
        pieces: an .npz file with the ids of both sides, and where each sentence ends.
        sizes: sizes of the model.
        updates: total number of updates.
        warm_up: number of untimed updates.
        budget: padded tokens of an update, both sides together.
        peak: highest learning rate.
        warmup_updates: updates until the highest learning rate.
        threads: number of torch threads; default: torch's.
        device: cpu, or cuda; with cuda, only one GPU may be visible, because the trainer would use all (DataParallel).
        dtype: float32, or bfloat16 for autocast with fp32 weights.
        is_exact: use the batches of `plain_loop`, which never exceed the budget. Otherwise batches have a fixed
            number of pairs, grouped by length (the trainer's own method), and meet the budget only on average.
    """
    import transformers

    _set_up(threads)
    dataset, per_batch = _rows(read_pairs(Path(pieces)), budget, is_exact)
    clock = _Clock(device=device, warm_up=warm_up, updates=updates)
    with tempfile.TemporaryDirectory() as folder:
        trainer = transformers.Seq2SeqTrainer(
            model=transformers.MarianMTModel(_config(sizes)),
            args=transformers.Seq2SeqTrainingArguments(
                output_dir=folder,
                use_cpu=device == "cpu",
                bf16=dtype == "bfloat16",
                per_device_train_batch_size=per_batch,
                train_sampling_strategy="random" if is_exact else "group_by_length",
                max_steps=updates,
                learning_rate=peak,
                warmup_steps=warmup_updates,
                **ARGUMENTS,
            ),
            train_dataset=dataset,
            data_collator=lambda items: clock.count(_collate(items[0] if is_exact else items)),
            callbacks=[clock.callback()],
        )
        trainer.train()
    return {
        **clock.figures(),
        "peak": peak_gib(device),
        "peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "version": transformers.__version__,
    }


ARGUMENTS: dict[str, Any] = {
    "logging_nan_inf_filter": False,  # the check would make the host wait for the GPU at every step
    "label_smoothing_factor": 0.1,
    "adam_beta2": 0.98,
    "max_grad_norm": 1.0,
    "save_strategy": "no",
    "logging_strategy": "no",
    "report_to": [],
    "disable_tqdm": True,
    "dataloader_num_workers": 0,
}
"""Arguments of every training."""


@dataclass(kw_only=True, slots=True)
class _Clock:
    """Records the end times of updates and the tokens of batches."""

    device: str
    warm_up: int
    updates: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    """Target tokens, all tokens and padded tokens of each batch, in order; the loader is one batch ahead."""
    ends: list[float] = field(default_factory=list)
    """End of every update, in seconds since the epoch."""

    def count(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        real = int((batch["labels"] != IGNORED).sum())
        filled = real + int(batch["attention_mask"].sum())
        self.batches.append((real, filled, batch["input_ids"].numel() + batch["labels"].numel()))
        return batch

    def end_step(self, step: int) -> None:
        if step in (self.warm_up, self.updates):
            wait(self.device)
        self.ends.append(time.time())

    def callback(self) -> Any:
        from transformers import TrainerCallback

        class AtEnd(TrainerCallback):  # type: ignore[misc]
            def on_step_end(_, args: Any, state: Any, control: Any, **__: Any) -> None:  # noqa: N805
                self.end_step(state.global_step)

        return AtEnd()

    def figures(self) -> dict[str, Any]:
        timed = self.batches[self.warm_up : self.updates]
        ends = self.ends[self.warm_up - 1 :]
        took = ends[-1] - ends[0]
        tokens, filled, padded = (sum(column) for column in zip(*timed, strict=True))
        return {
            "tokens_per_second": tokens / took,
            "seconds_per_update": took / len(timed),
            "padding": 1 - filled / padded,
            "padded_per_update": padded / len(timed),
        }


def _config(sizes: dict[str, Any]) -> Any:
    """Marian's configuration, with the sizes that all programs train."""
    from transformers import MarianConfig

    return MarianConfig(
        vocab_size=sizes["vocab"],
        d_model=sizes["d_model"],
        encoder_layers=sizes["encoder_layers"],
        decoder_layers=sizes["decoder_layers"],
        encoder_attention_heads=sizes["num_heads"],
        decoder_attention_heads=sizes["num_heads"],
        encoder_ffn_dim=sizes["d_ff"],
        decoder_ffn_dim=sizes["d_ff"],
        dropout=sizes["dropout"],
        attention_dropout=0.0,
        activation_dropout=sizes["activation_dropout"],
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        max_position_embeddings=256,
    )


def _collate(rows: Sequence[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """Pad rows to a batch of (B, S) and (B, T)."""
    source, labels = pad([r["input_ids"] for r in rows]), pad([r["labels"] for r in rows])
    return {
        "input_ids": source,
        "attention_mask": (source != PAD).long(),
        "decoder_input_ids": torch.cat([torch.full_like(labels[:, :1], BOS), labels[:, :-1]], 1),
        "labels": labels.masked_fill(labels == PAD, IGNORED),
    }


def _set_up(threads: int | None) -> None:
    """Set threads, kernels and verbosity of this process."""
    import transformers

    if threads is not None:
        torch.set_num_threads(threads)
    torch.backends.cuda.enable_cudnn_sdp(False)
    transformers.utils.logging.set_verbosity_error()


def _rows(pairs: Sequence[Pair], budget: int, is_exact: bool) -> tuple[list[Any], int]:
    """The training set and the batch size: pairs, or (with `is_exact`) whole batches and a batch size of 1."""
    if is_exact:
        return [[_row(pair) for pair in b] for b in batches(pairs, budget, random.Random(1))], 1
    return [_row(pair) for pair in pairs], round(budget / (sum(len(s) + len(t) + 2 for s, t in pairs) / len(pairs)))


def _row(pair: Pair) -> dict[str, list[int]]:
    source, target = pair
    return {"input_ids": [*source, EOS], "labels": [*target, EOS]}
