"""`zeromt compare`: several runs side by side, or one alone."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from configs import UserError
from configs.process.environment import restored_environment
from configs.process.files import check_apart, written
from configs.process.text import to_json
from trainer.inference.loading import places_of
from trainer.ranks.process import tune_process
from zeromt.comparing.comparison import Asked, Comparison, compare
from zeromt.comparing.hypotheses import How
from zeromt.comparing.page.page import to_html
from zeromt.comparing.text import as_markdown, to_terminal
from zeromt.evaluating.command import parse_set
from zeromt.evaluating.resampling import Samples
from zeromt.evaluating.scoring import Wanted


@restored_environment()
def compare_runs(
    *,
    runs: Sequence[str],
    sets: Sequence[str] | None,
    metrics: list[str] | None,
    lowercase: bool,
    tokenizer: str | None,
    raw_weights: bool,
    precision: str | None,
    search: Mapping[str, Any],
    bootstrap: int,
    randomisation: int,
    sentences: int,
    form: Literal["terminal", "json", "markdown"] | None,
    html: str | None,
) -> int:
    """Compare runs, or report one: on standard output, or as a page.

    Args:
        runs: folders of runs, or checkpoints; each further one is tested against the first.
        sets: names of the runs' sets, or others as items of `evaluation.sets`, in YAML; None: the sets all runs have.
        metrics: written as items of `evaluation.metrics`, in YAML; None: those of the first run.
        lowercase, tokenizer: ignore case, in metrics that can; sacreBLEU's tokenizer, of BLEU.
        raw_weights: use the weights themselves, even if there are moving averages.
        precision: see `zeromt translate`.
        search: fields of the runs' search sections to replace.
        bootstrap, randomisation: samples to draw; 0 turns the test off.
        sentences: how many of each set to show.
        form: the format to print; None: the terminal's, or nothing if a page is written.
        html: a file for the page.

    Raises:
        UserError: see `zeromt.comparing.comparison.compare`.
    """
    wanted = Wanted.of(metrics, tokenizer, lowercase=lowercase)
    named = [parse_set(text) for text in sets or ()]
    names = [one if isinstance(one, str) else one.name for one in named]
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise UserError(f"--set: {twice[0]} is given twice; allowed is once")
    check_apart(places_of(runs), {"--html": html})
    tune_process()
    comparison = compare(
        runs,
        Asked(
            sets=named,
            wanted=wanted,
            samples=Samples(bootstrap=bootstrap, randomisation=randomisation),
            how=How(search=search, raw=raw_weights, precision=precision),
            sentences=sentences,
        ),
    )
    if form is not None or html is None:
        print(_shown(comparison, form), end="", flush=True)
    if html is not None:
        with written(html, "--html") as sink:
            sink.write(to_html(comparison))
    return 0


def _shown(comparison: Comparison, form: str | None) -> str:
    if form == "json":
        return f"{to_json(dataclasses.asdict(comparison), indent=1)}\n"
    return as_markdown(comparison) if form == "markdown" else f"{to_terminal(comparison)}\n"
