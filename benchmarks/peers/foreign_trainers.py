"""Trains a `Work` with the commands of Eole and JoeyNMT, in their own environments, and reads their logs."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.common.child import environment
from benchmarks.common.measure import TreeMemory
from benchmarks.training.trainers import Work
from configs import UserError


def eole(work: Work, python: str) -> dict[str, Any]:
    """`eole train`: tokens a second from all log lines but the first."""
    path = work.folder / "eole.yaml"
    path.write_text(yaml.safe_dump(_eole_config(work)))
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
    }


def _eole_config(work: Work) -> dict[str, Any]:
    sizes, every = work.sizes, _log_every(work)
    vocabulary = work.folder / "vocabulary"
    return {
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


def joeynmt(work: Work, python: str) -> dict[str, Any]:
    """`python -m joeynmt train`: tokens a second from its log."""
    symbols = "".join(f"{s}\n" for s in ("<unk>", "<pad>", "<s>", "</s>"))
    vocabulary = work.folder / "joeynmt.vocabulary"
    vocabulary.write_text(symbols + (work.folder / "vocabulary").read_text())
    for side in ("source", "target"):
        lines = work.text(side).read_text(encoding="utf-8").splitlines(keepends=True)
        (work.folder / f"few-pieces.{side}").write_text("".join(lines[:8]), encoding="utf-8")
    path = work.folder / "joeynmt.yaml"
    path.write_text(yaml.safe_dump(_joeynmt_config(work, vocabulary)))
    log, memory = _logged([python, "-m", "joeynmt", "train", str(path), "--skip-test"], work)
    rates = [float(r) for r in re.findall(r"Tokens per Sec:\s*(\d+)", log)]
    if not rates:
        raise UserError(f"joeynmt: no figures in its log\n{log[-2000:]}")
    timed = rates[1:] or rates
    return {"tokens_per_second": sum(timed) / len(timed), "peak_memory": memory}


def _joeynmt_config(work: Work, vocabulary: Path) -> dict[str, Any]:
    sizes, every = work.sizes, _log_every(work)
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
    return {
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
            "scheduling": "exponential",  # JoeyNMT has no constant rate; this multiplies by 1 after each epoch
            "decrease_factor": 1.0,
            "label_smoothing": 0.1,
            "epochs": 1000,
            "updates": work.warm_up + 2 * every,
            "validation_freq": 10**6 * every,  # never; must be a multiple of logging_freq
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


def _log_every(work: Work) -> int:
    """Updates between log lines: the first line covers the warm-up, and two more follow."""
    return max(1, (work.updates - work.warm_up) // 2)


def _logged(command: Sequence[str], work: Work) -> tuple[str, int]:
    """Run a program of another environment; returns its output and its peak memory."""
    rest = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    rest["OMP_NUM_THREADS"] = str(work.threads)
    process = subprocess.Popen(
        command, cwd=work.folder, env=rest, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    memory = TreeMemory(process.pid, seconds=0.5)
    log, _ = process.communicate()
    peak = memory.finish().high_water
    if process.returncode:
        raise UserError(f"{command[0]} {command[2]}: exit code {process.returncode}\n{log[-2000:]}")
    return log, peak
