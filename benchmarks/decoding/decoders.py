"""One trained model as it is decoded by zeromt, by Transformers and by CTranslate2: lines in, pieces and lines out.

Each class takes a folder and a number of threads, and loads what it needs at once, so that translating can be timed
alone.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from sentencepiece import SentencePieceProcessor

from benchmarks.common.child import ROOT, environment
from configs import SearchSection, UserError
from data_pipeline.tokenizer import EOS_ID, PAD_ID, Tokenizer
from model import Transformer
from trainer.inference.export.exact import load_exact
from trainer.inference.translation.translator import Translator, cut_batches
from trainer.ranks.process import tune_process

PATIENCE = 20.0
"""CTranslate2 stops when this times the beam translations are complete: far beyond what can still win."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Search:
    """What is searched for; the same in each program's own words."""

    beam: int
    length_penalty: float
    """Sums of log-probabilities are divided by length^this, EOS counted."""
    longest: int
    """Tokens of a translation at most, EOS counted."""
    is_same: bool
    """Whether the searches are to be the same: until no open hypothesis can win. Each with its own habits where false:
    all end at some number of finished hypotheses, we by a limit relative to the source too (and divide by GNMT's
    penalty with alpha = length_penalty / 0.8, which prefers lengths around 20 tokens alike)."""
    batch: int
    """Padded source tokens times beam; CTranslate2 counts sentences, and takes a 64th."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Decoded:
    """A translation: ids of this project without EOS, and the text that the program's own tokenizer makes."""

    ids: list[int]
    text: str


class Decoder(Protocol):
    """A program that has loaded a model."""

    def translate(self, lines: Sequence[str], search: Search) -> list[Decoded]:
        """The best translation of each line."""


class Ours:
    """This project, in fp32, or in another precision of torch."""

    def __init__(self, folder: str, threads: int, dtype: str = "float32") -> None:
        torch.set_num_threads(threads)
        tune_process()
        trained = load_exact(Path(folder))
        self.model: Transformer = trained.model.to(getattr(torch, dtype))
        self.tokenizer: Tokenizer = trained.tokenizer
        self.target_language = trained.config.prepare.target_language

    def translate(self, lines: Sequence[str], search: Search) -> list[Decoded]:
        """The best translation of each line."""
        if search.is_same:
            section = SearchSection(
                beam=search.beam,
                patience=0,
                length_penalty=search.length_penalty,
                length_penalty_kind="mean",
                max_length_ratio=1e-6,
                max_length_extra=search.longest,
                batch_tokens=search.batch,
            )
        else:
            section = SearchSection(
                beam=search.beam, length_penalty=search.length_penalty / 0.8, batch_tokens=search.batch
            )
        translator = Translator(self.model, self.tokenizer, section, torch.device("cpu"))
        return [Decoded(ids=best[0].ids, text=best[0].text) for best in translator.translate(lines)]


class Transformers:
    """`generate` of the exported folder, batched by length as a careful user would."""

    def __init__(self, folder: str, threads: int, dtype: str = "float32") -> None:
        import transformers

        torch.set_num_threads(threads)
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=dtype).eval()

    def translate(self, lines: Sequence[str], search: Search) -> list[Decoded]:
        """The best translation of each line."""
        rows = self.tokenizer(list(lines), truncation=False)["input_ids"]
        ids: list[list[int]] = [[]] * len(rows)
        for batch in cut_batches([len(row) for row in rows], search.batch // search.beam):
            inputs = self.tokenizer.pad({"input_ids": [rows[i] for i in batch]}, return_tensors="pt")
            with torch.inference_mode():
                found = self.model.generate(**inputs, **self._options(search))
            for i, row in zip(batch, found[:, 1:].tolist(), strict=True):
                ids[i] = row[: row.index(EOS_ID)] if EOS_ID in row else [t for t in row if t != PAD_ID]
        texts = self.tokenizer.batch_decode(ids, skip_special_tokens=True)
        return [Decoded(ids=row, text=text) for row, text in zip(ids, texts, strict=True)]

    def _options(self, search: Search) -> dict[str, Any]:
        options: dict[str, Any] = {"num_beams": search.beam, "max_length": search.longest + 1, "do_sample": False}
        if search.beam > 1:
            options["length_penalty"] = search.length_penalty
            options["early_stopping"] = "never" if search.is_same else False
        return options


class CTranslate2:
    """`translate_batch` of the exported folder, which sorts by length itself."""

    def __init__(self, folder: str, threads: int) -> None:
        import ctranslate2

        self.pieces = SentencePieceProcessor(model_file=str(Path(folder, "tokenizer.model")))
        tokenizer = Tokenizer.load(Path(folder))
        self.ids_of = {piece: i for i, piece in enumerate(tokenizer.target_vocabulary())}
        self.translator = ctranslate2.Translator(
            folder, device="cpu", compute_type="default", inter_threads=1, intra_threads=threads
        )

    def translate(self, lines: Sequence[str], search: Search) -> list[Decoded]:
        """The best translation of each line."""
        options: dict[str, Any] = {"length_penalty": search.length_penalty} if search.beam > 1 else {}
        if search.is_same:
            options["min_decoding_length"] = 0  # it is 1 unless given, and no translation is empty
        if search.beam > 1 and search.is_same and search.length_penalty:
            options["patience"] = PATIENCE  # without a penalty it stops as soon as nothing can win anyway
        results = self.translator.translate_batch(
            self.pieces.encode(list(lines), out_type=str),
            beam_size=search.beam,
            max_decoding_length=search.longest,
            max_batch_size=max(1, search.batch // 64),
            suppress_sequences=[["<pad>"], ["<s>"]],
            return_end_token=True,  # so that it counts in the length, as it does in the others
            **options,
        )
        rows = [[piece for piece in r.hypotheses[0] if piece != "</s>"] for r in results]
        return [Decoded(ids=[self.ids_of[p] for p in row], text=self.pieces.decode(row)) for row in rows]


DECODERS: dict[str, type[Ours] | type[Transformers] | type[CTranslate2]] = {
    "zeromt": Ours,
    "transformers": Transformers,
    "ctranslate2": CTranslate2,
}


def measure(
    *, kind: str, folder: str, threads: int, lines: list[str], searches: list[dict[str, Any]], warm_up: int, **more: Any
) -> dict[str, Any]:
    """Load, translate the last `warm_up` lines untimed, then all of them, in each way: seconds, pieces and texts."""
    decoder: Decoder = DECODERS[kind](folder, threads, **more)
    results = []
    for fields in searches:
        search = Search(**fields)
        decoder.translate(lines[len(lines) - warm_up :], search)
        begin, cpu = time.perf_counter(), time.process_time()
        found = decoder.translate(lines, search)
        results.append(
            {
                "seconds": time.perf_counter() - begin,
                "cpu_seconds": time.process_time() - cpu,
                "ids": [decoded.ids for decoded in found],
                "texts": [decoded.text for decoded in found],
            }
        )
    return {"results": results}


def export(run: str, format_: str, folder: Path, *more: str) -> None:
    """`zeromt export`.

    Raises:
        UserError: it failed; the message ends as what it wrote.
    """
    options = [str(Path(run).resolve()), "--format", format_, "-o", str(folder), *more]
    command = [sys.executable, "-m", "launcher", "export", *options]
    ended = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    if ended.returncode:
        raise UserError(f"export to {format_}: exit code {ended.returncode}\n{ended.stderr[-2000:]}")
