"""One model trained on one corpus by zeromt, by a plain loop, by Transformers, Eole and JoeyNMT: what each measures.

Every function takes a `Work` and returns target tokens a second without padding, seconds an update, padding, peak
memory of the tree of processes and seconds to the first update, from figures that the program itself reports.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks import plain_loop, with_transformers
from benchmarks.child import ROOT, call, environment
from benchmarks.measure import TreeMemory
from benchmarks.text import read_lines
from configs import UserError
from data_pipeline.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is trained, on what, and for how long. Sizes are in the model section's words."""

    folder: Path
    source: Path
    target: Path
    threads: int
    updates: int
    warm_up: int
    """Updates before the clock."""
    budget: int
    """Padded tokens of an update, both sides together."""
    sizes: dict[str, Any]
    peak: float = 1e-3
    warmup_updates: int = 300

    @property
    def pieces(self) -> Path:
        """Ids of both sides."""
        return self.folder / "pieces.npz"

    @property
    def dataset(self) -> Path:
        """The folder that zeromt prepared."""
        return self.folder / "prepared"

    def text(self, side: str) -> Path:
        """Pieces with spaces between them."""
        return self.folder / f"pieces.{side}"


def prepare(work: Work, vocab: int) -> dict[str, Any]:
    """The dataset, and the same pairs as ids and as text for the others; sizes of the model with its vocabulary."""
    lines = [read_lines(path) for path in (work.source, work.target)]
    few = [work.folder / "few.source", work.folder / "few.target"]
    for path, side in zip(few, lines, strict=True):
        path.write_text("".join(f"{line}\n" for line in side[:8]), encoding="utf-8")
    settings = {
        "output": str(work.dataset),
        "root": "/",
        "train": {"source": [str(work.source)], "target": [str(work.target)]},
        "valid": {"source": [str(few[0])], "target": [str(few[1])]},
        "tokenizer": {"kind": "bpe", "vocabulary": "joint", "vocab_size": vocab},
        "max_pieces": 128,
        "target_language": "de",
        "source_language": "en",
    }
    config = work.folder / "run.yaml"
    config.write_text(yaml.safe_dump({"prepare": settings}))
    _run([sys.executable, "-m", "launcher", "prepare", str(config)], environment(), work.folder)
    tokenizer = Tokenizer.load(work.dataset)
    ids = [tokenizer.encode_source(lines[0]), tokenizer.encode_target(lines[1])]
    kept = [i for i, pair in enumerate(zip(*ids, strict=True)) if all(0 < len(side) <= 127 for side in pair)]
    vocabulary = tokenizer.target_vocabulary()
    arrays: dict[str, Any] = {}
    for name, sentences in zip(("source", "target"), ids, strict=True):
        rows = [sentences[i] for i in kept]
        arrays[name] = np.array([i for row in rows for i in row], dtype=np.int32)
        arrays[f"{name}_ends"] = np.cumsum([len(row) for row in rows])
        work.text(name).write_text("".join(" ".join(vocabulary[i] for i in row) + "\n" for row in rows))
    np.savez(work.pieces, **arrays)
    (work.folder / "vocabulary").write_text("".join(f"{piece}\n" for piece in vocabulary[4:]))
    return {"vocab": tokenizer.target_vocab_size}


def ours(work: Work, *, precision: str, ranks: int = 1, stage: int = 0) -> dict[str, Any]:
    """`zeromt train`, or `zeromt launch local` on several ranks, through the DeepSpeed engine."""
    name = f"ours-{precision}-{ranks}-{stage}-{time.time_ns()}"
    side = work.budget // 2 // ranks
    overrides = {
        "name": name,
        "output": work.folder,
        "stream.micro_batches": ranks,
        "stream.source_tokens": side,
        "stream.target_tokens": side,
        **{f"model.{key}": value for key, value in work.sizes.items() if key != "vocab"},
        "optimizer.lr": work.peak,
        "schedule.warmup_updates": work.warmup_updates,
        "engine.precision": precision,
        "engine.zero_stage": stage,
        "training.max_updates": work.updates,
        "training.log_every": 1,
        "evaluation.every_updates": 0,
        "checkpoint.every_updates": 0,
    }
    start = ["train"] if ranks == 1 else ["launch", "local"]
    command = [sys.executable, "-m", "launcher", *start, str(work.folder / "run.yaml")]
    command += ["--nproc", str(ranks)] if ranks > 1 else []
    command += [f"{key}={value}" for key, value in overrides.items()]
    threads = {"OMP_NUM_THREADS": str(work.threads // ranks)}
    began = time.time()
    memory = _run(command, environment() | threads, work.folder)
    lines = [json.loads(line) for line in (work.folder / name / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["kind"] == "train"]
    timed = lines[work.warm_up :]
    seconds = lines[-1]["total_seconds"] - lines[work.warm_up - 1]["total_seconds"]
    tokens = sum(line["target_tokens"] for line in timed)
    filled = tokens + sum(line["source_tokens"] for line in timed)
    return {
        "tokens_per_second": tokens / seconds,
        "seconds_per_update": seconds / len(timed),
        "padding": 1 - filled / sum((t["target_tokens"] + t["source_tokens"]) / (1 - t["padding"]) for t in timed),
        "waiting_for_data": sum(t["waiting_for_data"] * t["seconds_per_update"] for t in timed) / seconds,
        "peak_memory": memory,
        "losses": [lines[0]["loss"], lines[-1]["loss"]],
        "began": began,
    }


def plain(work: Work, *, dtype: str) -> dict[str, Any]:
    """The loop by hand."""
    return _timed_child(plain_loop.train, work, dtype=dtype)


def transformers(work: Work) -> dict[str, Any]:
    """Marian in Transformers' Seq2SeqTrainer, grouped by length."""
    return _timed_child(with_transformers.train, work)


def _timed_child(function: Any, work: Work, **more: Any) -> dict[str, Any]:
    begun = time.time()
    fields = asdict(work)
    for name in ("folder", "source", "target"):
        fields.pop(name)
    found: dict[str, Any] = call(function, pieces=str(work.pieces), **fields, **more)
    return {**found, "first_update_seconds": found["first_update_at"] - begun}


def eole(work: Work, python: str) -> dict[str, Any]:
    """`eole train`; its last log line but the first tells tokens a second."""
    sizes = work.sizes
    every = max(1, (work.updates - work.warm_up) // 2)
    vocabulary = work.folder / "vocabulary"
    config = {
        "data": {"corpus": {"path_src": str(work.text("source")), "path_tgt": str(work.text("target"))}},
        "src_vocab": str(vocabulary),
        "tgt_vocab": str(vocabulary),
        "share_vocab": True,
        "save_data": str(work.folder / "eole"),
        "overwrite": True,
        "report_every": every,
        "seed": 1,
        "model": {
            "architecture": "transformer",
            "hidden_size": sizes["d_model"],
            "word_vec_size": sizes["d_model"],
            "heads": sizes["num_heads"],
            "transformer_ff": sizes["d_ff"],
            "encoder": {"encoder_type": "transformer", "layers": sizes["encoder_layers"]},
            "decoder": {"decoder_type": "transformer", "layers": sizes["decoder_layers"]},
            "embeddings": {"position_encoding_type": "SinusoidalInterleaved"},
            "share_embeddings": True,
            "share_decoder_embeddings": True,
        },
        "training": {
            "model_path": str(work.folder / "eole-model"),
            "compute_dtype": "fp32",
            "batch_type": "tokens",
            "batch_size": work.budget // 2,
            "batch_size_multiple": 1,
            "normalization": "tokens",
            "num_workers": 0,
            "bucket_size": 65_536,
            "optim": "adamw",
            "adam_beta2": 0.98,
            "learning_rate": work.peak,
            "decay_method": "none",
            "max_grad_norm": 1.0,
            "label_smoothing": 0.1,
            "dropout": [sizes["dropout"]],
            "attention_dropout": [0.0],
            "param_init_method": "xavier_uniform",
            "train_steps": work.warm_up + 2 * every,
            "save_checkpoint_steps": 10**6,
            "valid_steps": 10**6,
        },
    }
    path = work.folder / "eole.yaml"
    path.write_text(yaml.safe_dump(config))
    begun = time.time()
    log, memory = _logged([python, "-m", "eole.bin.main", "train", "-config", str(path)], work)
    found = re.findall(r"Step\s+(\d+).*bsz:\s*(\d+)/\s*(\d+)/.*;\s*(\d+)/\s*(\d+) tok/s;\s*(\d+) sec", log)
    if not found:
        raise UserError(f"eole: no figures in its log\n{log[-2000:]}")
    timed = found[1:]
    rates = [float(line[4]) for line in timed]
    return {
        "tokens_per_second": sum(rates) / len(rates),
        "seconds_per_update": float(np.mean([float(line[2]) / float(line[4]) for line in timed])),
        "peak_memory": memory,
        "began": begun,
    }


def joeynmt(work: Work, python: str) -> dict[str, Any]:
    """`python -m joeynmt train`; its log tells tokens a second."""
    sizes = work.sizes
    symbols = "".join(f"{s}\n" for s in ("<unk>", "<pad>", "<s>", "</s>"))
    vocabulary = work.folder / "joeynmt.vocabulary"
    vocabulary.write_text(symbols + (work.folder / "vocabulary").read_text())
    for side in ("source", "target"):
        lines = work.text(side).read_text(encoding="utf-8").splitlines(keepends=True)
        (work.folder / f"few-pieces.{side}").write_text("".join(lines[:8]), encoding="utf-8")
    every = max(1, (work.updates - work.warm_up) // 2)
    stack = {
        "type": "transformer",
        "num_heads": sizes["num_heads"],
        "embeddings": {"embedding_dim": sizes["d_model"], "scale": True},
        "hidden_size": sizes["d_model"],
        "ff_size": sizes["d_ff"],
        "dropout": sizes["dropout"],
        "layer_norm": "pre",
    }
    pieces = {"level": "word", "lowercase": False, "voc_file": str(vocabulary), "tokenizer_type": "none"}
    config = {
        "name": "benchmark",
        "joeynmt_version": "2.3.0",
        "model_dir": str(work.folder / "joeynmt-model"),
        "use_cuda": False,
        "fp16": False,
        "data": {
            "train": str(work.folder / "pieces"),
            "dev": str(work.folder / "few-pieces"),
            "dataset_type": "plain",
            "src": {"lang": "source", **pieces},
            "trg": {"lang": "target", **pieces},
        },
        "testing": {"beam_size": 1, "max_output_length": 2, "eval_metrics": ["bleu"]},
        "training": {
            "random_seed": 1,
            "optimizer": "adamw",
            "adam_betas": [0.9, 0.98],
            "learning_rate": work.peak,
            "learning_rate_min": 1e-9,
            "clip_grad_norm": 1.0,
            "batch_size": work.budget // 2,
            "batch_type": "token",
            "normalization": "tokens",
            "loss": "crossentropy",
            "scheduling": "exponential",  # there is no constant one; after each epoch
            "decrease_factor": 1.0,
            "label_smoothing": 0.1,
            "epochs": 1000,
            "updates": work.warm_up + 2 * every,
            "validation_freq": 10**6,
            "logging_freq": every,
            "early_stopping_metric": "loss",
            "overwrite": True,
            "shuffle": True,
            "print_valid_sents": [],
        },
        "model": {
            "initializer": "xavier_uniform",
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": {**stack, "num_layers": sizes["encoder_layers"]},
            "decoder": {**stack, "num_layers": sizes["decoder_layers"]},
        },
    }
    path = work.folder / "joeynmt.yaml"
    path.write_text(yaml.safe_dump(config))
    begun = time.time()
    log, memory = _logged([python, "-m", "joeynmt", "train", str(path), "--skip-test"], work)
    rates = [float(r) for r in re.findall(r"Tokens per Sec:\s*(\d+)", log)]
    if not rates:
        raise UserError(f"joeynmt: no figures in its log\n{log[-2000:]}")
    timed = rates[1:] or rates
    return {"tokens_per_second": sum(timed) / len(timed), "peak_memory": memory, "began": begun}


def _logged(command: Sequence[str], work: Work) -> tuple[str, int]:
    """What a program of another environment writes on both streams, and the peak of its memory."""
    rest = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    rest["OMP_NUM_THREADS"] = str(work.threads)
    process = subprocess.Popen(
        command, cwd=work.folder, env=rest, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    memory = TreeMemory(process.pid)
    log, _ = process.communicate()
    peak = memory.finish().proportional
    if process.returncode:
        raise UserError(f"{command[0]} {command[2]}: exit code {process.returncode}\n{log[-2000:]}")
    return log, peak


def _run(command: Sequence[str], env: dict[str, str], folder: Path) -> int:
    """Peak memory of a command of ours.

    Raises:
        UserError: it failed; the message ends as what it wrote.
    """
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
        memory = TreeMemory(process.pid)
        process.wait()
        peak = memory.finish().proportional
        if process.returncode:
            log.seek(0)
            raise UserError(f"{' '.join(command[2:4])}: exit code {process.returncode}\n{log.read()[-2000:]}")
    return peak
