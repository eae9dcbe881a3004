"""Trains a `Work` with the command of Eole, in its own environment, and reads its log."""

import re
import subprocess
from collections.abc import Sequence
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
    lines = re.findall(r"Step\s+(\d+).*bsz:\s*(\d+)/\s*(\d+)/.*;\s*(\d+)/\s*(\d+) tok/s;\s*(\d+) sec", log)
    if not lines:
        raise UserError(f"eole: no figures in its log\n{log[-2000:]}")
    timed = lines[1:]
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
    memory = TreeMemory(process.pid)
    log, _ = process.communicate()
    peak = memory.finish()
    if process.returncode:
        raise UserError(f"{command[0]} {command[2]}: exit code {process.returncode}\n{log[-2000:]}")
    return log, peak
