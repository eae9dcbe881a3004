"""Whether exported models translate as the run does: greedy token by token, beam search by BLEU, all in fp32.

    python -m tests.verification.export_equality RUN --source test.en --reference test.de

Exports the run's newest checkpoint with `zeromt export` to Hugging Face and CTranslate2, loads both, and translates. A
greedy translation that differs counts only where, at the first place that differs, our model's log-probabilities of the
two tokens are TOLERANCE or more apart; less is a tie that rounding decides. Exit code 1 where one counts, or where a
BLEU is more than BLEU_TOLERANCE from ours.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.measure import machine, parser, print_machine, print_table, run_main
from benchmarks.common.results import Row, record
from benchmarks.common.text import read_lines
from benchmarks.decoding.decoders import CTranslate2, Decoded, Ours, Search, Transformers, export
from configs.components import ScoredText, make
from data_pipeline.tokenizer import BOS_ID, EOS_ID
from model import Transformer
from trainer.metrics.scoring import Scorer

TOLERANCE = 1e-4
BLEU_TOLERANCE = 0.1
EXPORTED = {"huggingface": Transformers, "ctranslate2": CTranslate2}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 where everything agrees, else 1."""
    options = parser(__doc__)
    options.add_argument("run", metavar="RUN", help="a run's folder or one checkpoint")
    options.add_argument("--source", type=Path, required=True)
    options.add_argument("--reference", type=Path, required=True)
    options.add_argument("--beam", type=int, default=5)
    options.add_argument("--length-penalties", type=float, nargs="+", default=[0.0, 1.0], metavar="A")
    options.add_argument("--sentences", type=int, help="the first so many; all unless given")
    options.add_argument("--batch", type=int, default=4096, help="padded source tokens of a batch, times the beam")
    options.add_argument("--threads", type=int, default=2)
    args = options.parse_args(arguments)
    lines, references = (read_lines(path, args.sentences) for path in (args.source, args.reference))
    figures: dict[str, Any] = {"machine": machine(), "sentences": len(lines)}
    print_machine(figures["machine"])
    with tempfile.TemporaryDirectory(dir=args.work) as work:
        for name in EXPORTED:
            export(args.run, name, Path(work, name))
        ours = Ours(args.run, args.threads)
        theirs = {name: kind(str(Path(work, name)), args.threads) for name, kind in EXPORTED.items()}
        longest = min(ours.model.max_positions - 1, 2 * max(map(len, ours.tokenizer.encode_source(lines))) + 20)
        figures["greedy"] = compare_greedy(ours, theirs, lines, search(args, 1, 0.0, longest))
        figures["beam"] = [
            compare_beam(ours, theirs, lines, references, search(args, args.beam, penalty, longest))
            for penalty in args.length_penalties
        ]
    settings = {"sentences": len(lines), "beam": args.beam}
    record(args, "exports", rows_of(figures), figures, settings=settings)
    wrong = sum(g["differences_that_count"] for g in figures["greedy"].values())
    far = [b for b in figures["beam"] if max(abs(x - b["bleu"]["zeromt"]) for x in b["bleu"].values()) > BLEU_TOLERANCE]
    print(f"\n{wrong} greedy differences count; {len(far)} beam searches differ by more than {BLEU_TOLERANCE} BLEU")
    return 1 if wrong or far else 0


def rows_of(figures: dict[str, Any]) -> list[Row]:
    """The table of a result."""
    rows: list[Row] = []
    for name in ("zeromt", *EXPORTED):
        row: Row = {"program": {"huggingface": "transformers"}.get(name, name)}
        if name in figures["greedy"]:
            row["greedy_differ"] = figures["greedy"][name]["sentences_that_differ"]
        for found in figures["beam"]:
            way = {0.0: "sums", 1.0: "means"}.get(found["length_penalty"], f"penalty {found['length_penalty']:g}")
            row[f"bleu_{way}"] = found["bleu"][name]
            row |= {f"same_{way}": found["same_pieces"][name]} if name != "zeromt" else {}
        rows.append(row)
    return rows


def search(args: Any, beam: int, length_penalty: float, longest: int) -> Search:
    """The options that make the three searches the same."""
    return Search(beam=beam, length_penalty=length_penalty, longest=longest, is_same=True, batch=args.batch)


def compare_greedy(ours: Ours, theirs: dict[str, Any], lines: list[str], search: Search) -> dict[str, Any]:
    """Translations that differ from ours, and how far apart the tokens are."""
    sources = [[*ids, EOS_ID] for ids in ours.tokenizer.encode_source(lines)]
    expected = ours.translate(lines, search)
    figures = {}
    for name, decoder in theirs.items():
        found = decoder.translate(lines, search)
        differing = [i for i in range(len(lines)) if expected[i].ids != found[i].ids]
        gaps = [gap(ours.model, sources[i], expected[i].ids, found[i].ids) for i in differing]
        figures[name] = {
            "sentences_that_differ": len(differing),
            "gaps": gaps,
            "differences_that_count": sum(g >= TOLERANCE for g in gaps),
            "equal_pieces_other_text": sum(
                a.ids == b.ids and a.text.strip() != b.text.strip() for a, b in zip(expected, found, strict=True)
            ),
        }
    rows = [
        {
            "greedy": name,
            "differ": str(f["sentences_that_differ"]),
            "count": str(f["differences_that_count"]),
            "largest gap": f"{max(f['gaps'], default=0):.1e}",
            "other text": str(f["equal_pieces_other_text"]),
        }
        for name, f in figures.items()
    ]
    print_table(f"greedy, {len(lines)} sentences, beside zeromt", rows)
    return figures


@torch.inference_mode()
def gap(model: Transformer, source: Sequence[int], ours: Sequence[int], theirs: Sequence[int]) -> float:
    """How far apart our model's log-probabilities are of the first two tokens that differ."""
    a, b = [*ours, EOS_ID], [*theirs, EOS_ID]
    place = next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    hidden_TD = model(torch.tensor([source]), torch.tensor([[BOS_ID, *a[:place]]]))[0]
    log_p_V = model.output(hidden_TD[-1]).log_softmax(-1)
    return float((log_p_V[a[place]] - log_p_V[b[place]]).abs())


def compare_beam(
    ours: Ours, theirs: dict[str, Any], lines: list[str], references: list[str], search: Search
) -> dict[str, Any]:
    """BLEU of each, and how many translations are the same."""
    scorer = Scorer([make("metric", "bleu")], ScoredText(target_language=ours.target_language))
    found: dict[str, list[Decoded]] = {"zeromt": ours.translate(lines, search)}
    found |= {name: decoder.translate(lines, search) for name, decoder in theirs.items()}
    scores = {
        name: scorer.score(lines, [d.text for d in decoded], [references])["bleu"].value
        for name, decoded in found.items()
    }
    same = {
        name: sum(a.ids == b.ids for a, b in zip(found["zeromt"], decoded, strict=True))
        for name, decoded in found.items()
    }
    title = f"beam {search.beam}, length penalty {search.length_penalty:g} (mean), at most {search.longest} tokens"
    rows = [{title: n, "BLEU": f"{bleu:.2f}", "same pieces": str(same[n])} for n, bleu in scores.items()]
    print_table(scorer.signatures["bleu"], rows)
    return {
        "length_penalty": search.length_penalty,
        "bleu": scores,
        "same_pieces": same,
        "signature": scorer.signatures["bleu"],
    }


if __name__ == "__main__":
    run_main(main)
