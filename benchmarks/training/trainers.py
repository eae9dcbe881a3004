"""Trains the same model on the same corpus with zeromt, the plain loop and Transformers.

Each function takes a `Work` and returns target tokens a second without padding, seconds per update, padding and peak
memory of the process tree, from the program's own reports.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.common.child import ROOT, call, environment
from benchmarks.common.measure import TreeMemory
from benchmarks.common.text import read_lines
from benchmarks.data.reading import read_epochs
from benchmarks.peers import with_transformers
from benchmarks.training import plain_loop
from configs import UserError
from data_pipeline.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Work:
    """The model, data and duration of a training. `sizes` are of the model, by names of all programs."""

    folder: Path
    source: Path
    target: Path
    threads: int
    updates: int
    warm_up: int
    """Number of untimed updates."""
    budget: int
    """Padded tokens of an update, both sides together."""
    sizes: dict[str, Any]
    peak: float = 1e-3
    warmup_updates: int = 300

    @property
    def pieces(self) -> Path:
        """File with the ids of both sides."""
        return self.folder / "pieces.npz"

    @property
    def dataset(self) -> Path:
        """The dataset prepared by zeromt."""
        return self.folder / "prepared"

    def text(self, side: str) -> Path:
        """Text file with the pieces of a side, separated by spaces."""
        return self.folder / f"pieces.{side}"


def prepare(work: Work, vocab: int) -> dict[str, Any]:
    """Prepare the dataset, and write the same pairs as ids and as pieces for the other programs; returns `vocab`."""
    _prepare_dataset(work, vocab)
    tokenizer = Tokenizer.load(work.dataset)
    lines = [read_lines(path) for path in (work.source, work.target)]
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


def _prepare_dataset(work: Work, vocab: int) -> None:
    """Run `zeromt prepare`, and write the configuration for `ours`."""
    few = [work.folder / "few.source", work.folder / "few.target"]
    for path, side in zip(few, (work.source, work.target), strict=True):
        path.write_text("".join(f"{line}\n" for line in read_lines(side, 8)), encoding="utf-8")
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
    _run([sys.executable, "-m", "zeromt", "prepare", str(config)], environment(), work.folder)


def side_of(work: Work) -> int:
    """The per-side token budget with which zeromt's updates meet the budget of `work` on average.

    zeromt bounds each side separately, and the shorter side seldom reaches its bound; the other programs bound the sum.
    """
    side = work.budget // 2
    stream = {"micro_batches": 1, "source_tokens": side, "target_tokens": side}
    read: dict[str, int] = call(read_epochs, dataset=str(work.dataset), stream=stream)
    return round(side * work.budget * read["micro_batches"] / read["padded"])


def ours(work: Work, *, precision: str, side: int) -> dict[str, Any]:
    """Train with `zeromt train`.

    Args:
        work: the model and the data.
        precision: `engine.precision`.
        side: tokens per side of a micro-batch.
    """
    name = f"ours-{precision}-{time.time_ns()}"
    overrides = {
        "name": name,
        "output": work.folder,
        "stream.micro_batches": 1,
        "stream.source_tokens": side,
        "stream.target_tokens": side,
        "model": json.dumps(our_model(work.sizes)),
        "optimizer.lr": work.peak,
        "schedule.warmup_updates": work.warmup_updates,
        "engine.precision": precision,
        "engine.zero_stage": 0,
        "training.max_updates": work.updates,
        "training.log_every": 1,
        "evaluation.every_updates": 0,
        "checkpoint.every_updates": 0,
    }
    command = [sys.executable, "-m", "zeromt", "train", str(work.folder / "run.yaml")]
    command += [f"{key}={value}" for key, value in overrides.items()]
    env = environment() | {"OMP_NUM_THREADS": str(work.threads)}
    memory = _run(command, env, work.folder)
    text = (work.folder / name / "metrics.jsonl").read_text(encoding="utf-8")
    lines = [line for line in map(json.loads, text.splitlines()) if line["kind"] == "train"]
    timed = lines[work.warm_up :]
    seconds = lines[-1]["total_seconds"] - lines[work.warm_up - 1]["total_seconds"]
    tokens = sum(line["target_tokens"] for line in timed)
    padded = sum((t["target_tokens"] + t["source_tokens"]) / (1 - t["padding"]) for t in timed)
    return {
        "tokens_per_second": tokens / seconds,
        "seconds_per_update": seconds / len(timed),
        "padding": 1 - sum(line["target_tokens"] + line["source_tokens"] for line in timed) / padded,
        "padded_per_update": padded / len(timed),
        "waiting_for_data": sum(t["waiting_for_data"] * t["seconds_per_update"] for t in timed) / seconds,
        "logging": 1 - sum(t["seconds_per_update"] for t in timed) / seconds,  # after every update
        "peak_memory": memory,
        "losses": [lines[0]["loss"], lines[-1]["loss"]],
    }


def our_model(sizes: dict[str, Any]) -> dict[str, Any]:
    """The section `model` with these sizes."""
    parts = {
        "attention": {"num_heads": sizes["num_heads"]},
        "feed_forward": {"d_ff": sizes["d_ff"], "dropout": sizes["activation_dropout"]},
    }
    names = ("d_model", "encoder_layers", "decoder_layers", "dropout")
    return {name: sizes[name] for name in names} | parts


def plain(work: Work, *, dtype: str, **more: Any) -> dict[str, Any]:
    """Train with the plain loop; further arguments are those of `plain_loop.train`."""
    return _child(plain_loop.train, work, dtype=dtype, **more)


def transformers(work: Work) -> dict[str, Any]:
    """Train Marian with Transformers' Seq2SeqTrainer, with batches grouped by length."""
    return _child(with_transformers.train, work)


def _child(function: Any, work: Work, **more: Any) -> dict[str, Any]:
    fields = asdict(work)
    for name in ("folder", "source", "target"):
        fields.pop(name)
    return dict(call(function, pieces=str(work.pieces), **fields, **more))


def _run(command: Sequence[str], env: dict[str, str], folder: Path) -> int:
    """Run a zeromt command; returns its peak memory in bytes.

    Raises:
        UserError: it failed; the message has the end of its output.
    """
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
        memory = TreeMemory(process.pid)
        process.wait()
        peak = memory.finish()
        if process.returncode:
            log.seek(0)
            raise UserError(f"{' '.join(command[2:4])}: exit code {process.returncode}\n{log.read()[-2000:]}")
    return peak
