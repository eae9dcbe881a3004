"""Marian of Transformers, trained by its Seq2SeqTrainer on ids: what `train.py` and `gpu_training.py` compare with."""

import random
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_plain_loop import peaks, wait
from benchmarks.plain_loop import BOS, EOS, PAD, Pair, batches, pad, read_pairs

IGNORED = -100
"""The label that its losses leave out."""


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
    """Train, and measure from the update `warm_up` on.

    Args:
        pieces: a .npz of ids: source, target, and where each sentence of either ends.
        sizes: of the model; its `activation_dropout` is `dropout` unless given.
        updates: in all.
        warm_up: updates before the clock.
        budget: padded tokens of an update, both sides together.
        peak: learning rate.
        warmup_updates: of the rate.
        threads: of torch; those that it takes by itself unless given.
        device: cuda, where this process must see one GPU alone (more would be shared out by DataParallel), or cpu.
        dtype: float32, or bfloat16 by autocast around weights in fp32.
        is_exact: no batch is over the budget, being one of `plain_loop`'s; else batches are grouped by length and have
            the budget on average, which is the trainer's own way, and whose largest may not fit a GPU.
    """
    import transformers
    from transformers import MarianConfig, MarianMTModel, Seq2SeqTrainer, Seq2SeqTrainingArguments, TrainerCallback

    if threads is not None:
        torch.set_num_threads(threads)
    transformers.utils.logging.set_verbosity_error()
    pairs = read_pairs(Path(pieces))
    rows = [_row(pair) for pair in pairs]
    mean = sum(len(s) + len(t) + 2 for s, t in pairs) / len(pairs)
    dataset: list[Any] = rows
    if is_exact:
        dataset = [[_row(pair) for pair in batch] for batch in batches(pairs, budget, random.Random(1))]
    counted = {"tokens": 0, "filled": 0, "padded": 0}
    clock = {"start": 0.0, "first": 0.0, "end": 0.0}

    def collate(items: Sequence[Any]) -> dict[str, torch.Tensor]:
        batch = items[0] if is_exact else items
        source, labels = pad([r["input_ids"] for r in batch]), pad([r["labels"] for r in batch])
        counted["tokens"] += int((labels != PAD).sum())
        counted["filled"] += int((labels != PAD).sum() + (source != PAD).sum())
        counted["padded"] += source.numel() + labels.numel()
        return {
            "input_ids": source,
            "attention_mask": (source != PAD).long(),
            "decoder_input_ids": torch.cat([torch.full_like(labels[:, :1], BOS), labels[:, :-1]], 1),
            "labels": labels.masked_fill(labels == PAD, IGNORED),
        }

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step in (warm_up, updates):
                wait(device)
            clock["end"] = time.perf_counter()
            if state.global_step == 1:
                clock["first"] = time.time()
            if state.global_step == warm_up:
                clock["start"] = clock["end"]
                counted.update(dict.fromkeys(counted, 0))

    config = MarianConfig(
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
        activation_dropout=sizes.get("activation_dropout", sizes["dropout"]),
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        max_position_embeddings=256,
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = Seq2SeqTrainer(
            model=MarianMTModel(config),
            args=Seq2SeqTrainingArguments(
                output_dir=folder,
                use_cpu=device == "cpu",
                bf16=dtype == "bfloat16",
                logging_nan_inf_filter=False,  # looking would make the host wait for a GPU at every step
                per_device_train_batch_size=1 if is_exact else round(budget / mean),
                train_sampling_strategy="random" if is_exact else "group_by_length",
                max_steps=updates,
                learning_rate=peak,
                warmup_steps=warmup_updates,
                label_smoothing_factor=0.1,
                adam_beta2=0.98,
                max_grad_norm=1.0,
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                disable_tqdm=True,
                dataloader_num_workers=0,
            ),
            train_dataset=dataset,
            data_collator=collate,
            callbacks=[Clock()],
        )
        trainer.train()
    took = clock["end"] - clock["start"]
    return {
        "tokens_per_second": counted["tokens"] / took,
        "seconds_per_update": took / (updates - warm_up),
        "padding": 1 - counted["filled"] / counted["padded"],
        "padded_per_update": counted["padded"] / (updates - warm_up),
        **peaks(device),
        "peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "first_update_at": clock["first"],
        "version": transformers.__version__,
    }


def _row(pair: Pair) -> dict[str, list[int]]:
    source, target = pair
    return {"input_ids": [*source, EOS], "labels": [*target, EOS]}
