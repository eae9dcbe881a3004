"""Data and GPUs of programs that train on the same pairs, and the FLOPs and memory that `zeromt plan` expects."""

import contextlib
import dataclasses
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from benchmarks.common.child import ROOT, environment
from benchmarks.training.plain_loop import CLIP_NORM
from configs import ModelSection, UserError, load_run
from configs.components import make
from data_pipeline.tokenizer import BOS_ID, EOS_ID, JOINT_FILE, PAD_ID, UNK_ID, Tokenizer
from model.flops import BatchShape, Vocabularies, model_flops
from model.gpus import known_gpu
from zeromt.cli.main import main

MEDIAN_PIECES, SIGMA, MAX_PIECES = 22.5, 0.6, 127
"""Log-normal lengths with a mean of 27, as in WMT14 English-German; at most 128 with EOS."""
GIB = 1 << 30
Figures = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """Settings that all measurements share."""

    folder: Path
    device: str
    gpus: Sequence[str]
    """Names as in CUDA_VISIBLE_DEVICES; on a CPU one name for each rank."""
    tokens: int
    """Padded tokens per side of a micro-batch; an update has one micro-batch for each GPU."""
    updates: int
    """Of all, a multiple of `warm_up`."""
    warm_up: int
    vocab: int
    settings: Sequence[str]
    """Overrides `section.key=value` of the run."""

    @property
    def dataset(self) -> Path:
        """The dataset prepared by zeromt."""
        return self.folder / "prepared"

    @property
    def pieces(self) -> Path:
        """The same pairs as ids."""
        return self.folder / "pieces.npz"

    def overrides(self, *, world_size: int) -> list[str]:
        """The command-line overrides of a run."""
        own = {
            "output": self.folder / "runs",
            "prepare.output": self.dataset,
            "prepare.max_pieces": MAX_PIECES,
            "stream.datasets": f"[{{path: '{self.dataset}'}}]",  # synthetic pairs, not the run's own corpus
            "stream.micro_batches": world_size,
            "stream.source_tokens": self.tokens,
            "stream.target_tokens": self.tokens,
            "stream.max_rows": self.tokens,
            "optimizer.clip_norm": CLIP_NORM,
            "engine.precision": "bf16",
            "training.max_updates": self.updates,
            "training.log_every": self.warm_up,  # a line takes 770 kernels and a wait
            "training.tensorboard": "false",
            "evaluation.every_updates": 0,
            "checkpoint.every_updates": 0,
        }
        return [*(f"{key}={value}" for key, value in own.items()), *self.settings]


def visible_gpus(device: str, number: int) -> list[str]:
    """The first `number` GPUs, named as in CUDA_VISIBLE_DEVICES.

    Raises:
        UserError: there are fewer GPUs.
    """
    if device == "cpu":
        return [str(i) for i in range(number)]
    count = torch.cuda.device_count()
    given = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(str(i) for i in range(count))).split(",")
    if not 0 < number <= count:
        raise UserError(f"--gpus: {number}, but torch finds {count}; give at most that, or --device cpu")
    return given[:number]


def prepare(job: Job, num_pairs: int) -> NDArray[np.int64]:
    """Write synthetic pairs as ids and as a zeromt dataset; returns their lengths (pairs, 2), EOS included.

    Every word is one piece, so that the text has exactly the drawn lengths. Frequencies follow Zipf's law.
    """
    words = [f"w{rank}" for rank in range(job.vocab - 4)]
    ids = _tokenizer(job.folder, words, job.vocab)
    rng = np.random.default_rng(1)
    source = rng.lognormal(np.log(MEDIAN_PIECES), SIGMA, num_pairs)
    sides = {"source": source, "target": source * rng.lognormal(0.0, 0.15, num_pairs)}
    weights = np.cumsum(1 / (np.arange(len(words)) + 2.7))
    arrays: dict[str, NDArray[Any]] = {}
    for name, side in sides.items():
        ends = np.cumsum(side.clip(1, MAX_PIECES).astype(np.int64))
        ranks = np.searchsorted(weights, rng.random(int(ends[-1])) * weights[-1])
        arrays |= {name: ids[ranks], f"{name}_ends": ends}
        lines = [" ".join(row) for row in np.split(np.array(words, dtype=object)[ranks], ends[:-1])]
        for file, count in ((name, num_pairs), (f"few.{name}", 4)):
            (job.folder / file).write_text("".join(f"{line}\n" for line in lines[:count]), encoding="utf-8")
    np.savez(job.pieces, **arrays)  # type: ignore[arg-type]
    prefixes = {"train": "", "valid": "few."}
    corpus = {part: {side: [f"{prefix}{side}"] for side in sides} for part, prefix in prefixes.items()}
    settings = {"output": str(job.dataset), "root": str(job.folder), "max_pieces": MAX_PIECES, **corpus}
    config = job.folder / "prepare.yaml"
    config.write_text(yaml.safe_dump({"prepare": {**settings, "tokenizer": {"path": str(job.folder)}}}))
    run_command([sys.executable, "-m", "zeromt", "prepare", str(config)], environment(), job.folder)
    return lengths_of(job)


def lengths_of(job: Job) -> NDArray[np.int64]:
    """Lengths (pairs, 2) of the prepared pairs, EOS included."""
    with np.load(job.pieces) as arrays:
        ends = [arrays[f"{side}_ends"] for side in ("source", "target")]
    return np.stack([np.diff(column, prepend=0) + 1 for column in ends], axis=1)


def _tokenizer(folder: Path, words: Sequence[str], vocab: int) -> NDArray[np.int32]:
    """Write a tokenizer with these words as pieces; returns the id of each word."""
    import sentencepiece

    with (folder / JOINT_FILE).open("wb") as model:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(words),
            model_writer=model,
            model_type="word",
            vocab_size=vocab,
            character_coverage=1.0,
            minloglevel=2,
            pad_id=PAD_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            unk_id=UNK_ID,
        )
    rows = Tokenizer.load(folder).encode_source(words)
    assert all(len(row) == 1 for row in rows)
    return np.array([row[0] for row in rows], dtype=np.int32)


def flops_per_target_token(model: ModelSection, vocab: int, lengths: NDArray[np.int64]) -> float:
    """Mean FLOPs of forward and backward per target token of the corpus, without padding and recomputation."""
    vocabularies, loss = Vocabularies(source=vocab, target=vocab), make("loss", "cross_entropy")
    shapes, counts = np.unique(lengths, axis=0, return_counts=True)
    total = 0
    for (source, target), count in zip(shapes.tolist(), counts.tolist(), strict=True):
        total += count * model_flops(model, loss, vocabularies, BatchShape(rows=1, source=source, target=target))
    return total / int(lengths[:, 1].sum())


def mfu(tokens_per_second: float, flops_per_token: float, device: str) -> float | None:
    """FLOP/s over the data sheet's; None for a card that is not in `model/gpus.py`, or on a CPU."""
    listed = known_gpu(torch.cuda.get_device_name()) if device == "cuda" else None
    return None if listed is None else tokens_per_second * flops_per_token / (listed.half_tflops * 1e12)


def planned_peak(run: str, overrides: Sequence[str], *, tokens: int, vocab: int, world_size: int = 1) -> int:
    """Peak memory of a rank's tensors on its GPU according to `zeromt plan`, in bytes.

    Args:
        run: name of a shipped run.
        overrides: its settings.
        tokens: padded tokens per side of a micro-batch.
        vocab: size of the joint vocabulary, if no dataset says so.
        world_size: number of ranks.
    """
    sizes = {"stream.source_tokens": tokens, "stream.target_tokens": tokens, "prepare.tokenizer.vocab_size": vocab}
    settings = [*overrides, *(f"{key}={value}" for key, value in sizes.items())]
    words = ["--gpus-per-node", str(world_size), "--gpu-memory", "1000000GB", *settings]
    stage = load_run(run, settings).engine.zero_stage
    [peak] = [
        o["memory"]["peak"] for o in json_output("plan", run, *words)["settings"] if o["setting"]["stage"] == stage
    ]
    return int(peak)


def json_output(*words: str) -> Any:
    """What a zeromt command prints with `--json`.

    Raises:
        ValueError: it failed, and printed why.
    """
    with contextlib.redirect_stdout(io.StringIO()) as out:
        main([*words, "--json"])
    return json.loads(out.getvalue())


def run_command(command: Sequence[str], env: dict[str, str], folder: Path) -> None:
    """Run a zeromt command.

    Raises:
        UserError: it failed; the message has the end of its output.
    """
    with (folder / "log").open("w+") as log:
        code = subprocess.run(command, cwd=ROOT, env=env, stdout=log, stderr=log, check=False).returncode
        if code:
            log.seek(0)
            raise UserError(f"{' '.join(command[1:3])}: exit code {code}\n{log.read()[-3000:]}")
