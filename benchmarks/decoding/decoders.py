"""Decoders of the same trained model by zeromt, Transformers and CTranslate2: lines in, pieces and lines out.

Each class takes a folder and a number of threads and loads everything in its constructor, so that translating can be
timed alone.
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
from trainer.inference.translation.translator import Translator, cut_batches
from trainer.ranks.process import tune_process
from zeromt.formats.check import load_exact


@dataclass(kw_only=True, slots=True, frozen=True)
class Search:
    """Search settings, which each decoder maps to its program's options.

    When a search ends is each program's own default. zeromt also has a maximum length relative to the source, and
    GNMT's penalty with alpha = length_penalty / 0.8, which has a similar effect around 20 tokens.
    """

    beam: int
    length_penalty: float
    """Sums of log-probabilities are divided by length^length_penalty, EOS included."""
    longest: int
    """Maximum number of tokens of a translation, EOS included."""
    batch: int
    """Padded source tokens times beam. CTranslate2 counts sentences; it gets a 64th of this number."""


Decoded = tuple[list[int], str]
"""A translation: ids in this project's vocabulary without EOS, and the text from the program's own tokenizer."""


class Decoder(Protocol):
    """A program with a loaded model."""

    def translate(self, lines: Sequence[str], search: Search) -> list[Decoded]:
        """The best translation of each line."""


class Ours:
    """zeromt, in fp32 or another torch dtype."""

    def __init__(self, folder: str, threads: int, dtype: str = "float32", device: str = "cpu") -> None:
        torch.set_num_threads(threads)
        tune_process()
        trained = load_exact(Path(folder))
        self.device = torch.device(device)
        self.model: Transformer = trained.model.to(self.device, getattr(torch, dtype))
        self.tokenizer: Tokenizer = trained.tokenizer
        self.target_language = trained.config.prepare.target_language

    def translate(self, lines: Sequence[str], search: Search) -> list[Decoded]:
        """The best translation of each line."""
        section = SearchSection(beam=search.beam, length_penalty=search.length_penalty / 0.8, batch_tokens=search.batch)
        translator = Translator(self.model, self.tokenizer, section, self.device)
        return [(best[0].ids, best[0].text) for best in translator.translate(lines)]


class Transformers:
    """`generate` of the exported folder, with batches by length, as a careful user would do."""

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
        for batch in cut_batches({i: len(row) for i, row in enumerate(rows)}, search.batch // search.beam):
            inputs = self.tokenizer.pad({"input_ids": [rows[i] for i in batch]}, return_tensors="pt")
            with torch.inference_mode():
                generated = self.model.generate(**inputs, **self._options(search))
            for i, row in zip(batch, generated[:, 1:].tolist(), strict=True):
                ids[i] = row[: row.index(EOS_ID)] if EOS_ID in row else [t for t in row if t != PAD_ID]
        texts = self.tokenizer.batch_decode(ids, skip_special_tokens=True)
        return list(zip(ids, texts, strict=True))

    def _options(self, search: Search) -> dict[str, Any]:
        options: dict[str, Any] = {"num_beams": search.beam, "max_length": search.longest + 1, "do_sample": False}
        if search.beam > 1:
            options["length_penalty"] = search.length_penalty
        return options


class CTranslate2:
    """`translate_batch` of the exported folder; it sorts by length itself."""

    def __init__(self, folder: str, threads: int, dtype: str = "default", device: str = "cpu") -> None:
        import ctranslate2

        self.pieces = SentencePieceProcessor(model_file=str(Path(folder, "tokenizer.model")))
        tokenizer = Tokenizer.load(Path(folder))
        self.ids_of = {piece: i for i, piece in enumerate(tokenizer.target_vocabulary())}
        self.translator = ctranslate2.Translator(
            folder, device=device, compute_type=dtype, inter_threads=1, intra_threads=threads
        )

    def translate(self, lines: Sequence[str], search: Search) -> list[Decoded]:
        """The best translation of each line."""
        options: dict[str, Any] = {"length_penalty": search.length_penalty} if search.beam > 1 else {}
        results = self.translator.translate_batch(
            self.pieces.encode(list(lines), out_type=str),
            beam_size=search.beam,
            max_decoding_length=search.longest,
            max_batch_size=max(1, search.batch // 64),
            suppress_sequences=[["<pad>"], ["<s>"]],
            return_end_token=True,  # EOS counts in the length, as in the other programs
            **options,
        )
        rows = [[piece for piece in r.hypotheses[0] if piece != "</s>"] for r in results]
        return [([self.ids_of[p] for p in row], self.pieces.decode(row)) for row in rows]


DECODERS: dict[str, type[Ours] | type[Transformers] | type[CTranslate2]] = {
    "zeromt": Ours,
    "transformers": Transformers,
    "ctranslate2": CTranslate2,
}


def measure(
    *, kind: str, folder: str, threads: int, lines: list[str], searches: list[dict[str, Any]], warm_up: int, **more: Any
) -> dict[str, Any]:
    """For each search, translate the last `warm_up` lines untimed, then all lines; returns seconds, ids and texts."""
    decoder: Decoder = DECODERS[kind](folder, threads, **more)
    results = []
    for fields in searches:
        search = Search(**fields)
        decoder.translate(lines[len(lines) - warm_up :], search)
        begin, cpu = time.perf_counter(), time.process_time()
        decoded = decoder.translate(lines, search)
        results.append(
            {
                "seconds": time.perf_counter() - begin,
                "cpu_seconds": time.process_time() - cpu,
                "ids": [ids for ids, _ in decoded],
                "texts": [text for _, text in decoded],
            }
        )
    return {"results": results}


def export(run: str, format_: str, folder: Path, *more: str) -> None:
    """Run `zeromt export`.

    Raises:
        UserError: it failed; the message has the end of its stderr.
    """
    options = [str(Path(run).resolve()), "--format", format_, "-o", str(folder), *more]
    command = [sys.executable, "-m", "zeromt", "export", *options]
    ended = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    if ended.returncode:
        raise UserError(f"export to {format_}: exit code {ended.returncode}\n{ended.stderr[-2000:]}")
