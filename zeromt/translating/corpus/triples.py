"""`--merge --choose triples`: of each line its source, its best candidate and its worst one, for `loss.kind: cpo`.

`triples.jsonl` has a line for each: `line` (its number in the input), `source`, `chosen`, `rejected`, and `margin`, by
how much the score of the chosen one is higher. `prepare` reads it: `train: {jsonl: [OUT/triples.jsonl], target_field:
chosen, rejected_field: rejected}`.
"""

import contextlib
import json
from collections import Counter
from pathlib import Path

from configs import UserError
from configs.components.translation_engine import Candidate
from configs.process.files import disk_errors
from configs.process.progress import Progress, say
from data_pipeline.preparation.raw.lines import packing_of
from zeromt.translating.corpus.folder import Job
from zeromt.translating.corpus.merging import checked, must_be_complete, write, writing
from zeromt.translating.corpus.ranking import Ranking

TRIPLES = "triples.jsonl"
"""In the folder of the translation; `.zst` is behind it if the input is compressed."""
SINGLE, TIED, CLOSE = "with fewer than two candidates", "whose candidates tie", "below --min-margin"


def merge_triples(
    job: Job, *, to: Path | None, ranking: Ranking | None, min_margin: float | None, candidates: int
) -> None:
    """Write the triples of all chunks, after each line was compared with its source.

    Args:
        job: the folder.
        to: the file to write; by default `triples.jsonl` in the folder.
        ranking: whose scores say which candidate is best.
        min_margin: lines whose best and worst scores differ by less have no triple.
        candidates: of a line, as the parts were given.

    Raises:
        UserError: there are no scores or no triples, a chunk is missing, or does not belong here.
    """
    if ranking is None:
        raise UserError("--choose: triples without scores; give --mbr or --quality, as the parts had it")
    if candidates < 2:
        raise UserError(
            "--choose: triples of one candidate; translate with --candidates 2 or more, and --sample or --beam, into "
            "another -o"
        )
    default = f"{TRIPLES}{'.zst' if packing_of(job.corpus.files[0]) else ''}"
    output = job.root / default if to is None else to
    must_be_complete(job)
    none, found = Counter[str](), 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(disk_errors("-o", output.parent))
        file = stack.enter_context(writing(output))
        bar = stack.enter_context(Progress("merging", job.corpus.num_lines, unit="lines"))
        for chunk, texts, content in checked(job):
            ordered = ranking.ordered(job, chunk.number, content)
            for (record, scores), source in zip(ordered, texts, strict=True):
                pair = best_and_worst(record.candidates, scores, min_margin or 0.0)
                if isinstance(pair, str):
                    none[pair] += 1
                    continue
                found += 1
                chosen, rejected, margin = pair
                tree = {"line": record.line, "source": source, "chosen": chosen, "rejected": rejected, "margin": margin}
                write(file, json.dumps(tree, ensure_ascii=False))
            bar.advance(chunk.lines)
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in none.most_common())
        if not found:
            raise UserError(f"--choose: triples of no line: {reasons}; translate with more candidates, or --sample")
    say(f"{output}: {found:,} triples{f'; lines without one: {reasons}' if reasons else ''}")


def best_and_worst(candidates: list[Candidate], scores: list[float], min_margin: float) -> tuple[str, str, float] | str:
    """The texts of a line's best and worst candidates and by how much their scores differ; or why there is no triple.

    Args:
        candidates: in the order of their scores, the best first; blank ones do not count.
        scores: of each.
        min_margin: the least difference, beside any above 0.
    """
    scored = [(one.text, score) for one, score in zip(candidates, scores, strict=True) if one.text.strip()]
    if len({text.strip() for text, _ in scored}) < 2:
        return SINGLE
    (chosen, best), (rejected, worst) = scored[0], scored[-1]
    if best <= worst or chosen.strip() == rejected.strip():
        return TIED
    return (chosen, rejected, best - worst) if best - worst >= min_margin else CLOSE
