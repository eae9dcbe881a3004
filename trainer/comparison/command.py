"""`zeromt compare` and `zeromt report`: runs beside one another, or one alone."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from configs import UserError
from configs.files import check_apart, written
from configs.text import to_json
from trainer.comparison.comparison import Asked, Comparison, compare
from trainer.comparison.hypotheses import How
from trainer.comparison.page.page import to_html
from trainer.comparison.scores import Samples
from trainer.comparison.text import to_markdown, to_terminal
from trainer.evaluation.command import Wanted, parse_set
from trainer.inference.loading import places_of
from trainer.ranks.process import tune_process
from trainer.runs.process.caller import restored_environment


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
        runs: folders of runs, or checkpoints; the others are tested beside the first.
        sets: of the runs by name, or others as the items of `evaluation.sets`, in YAML; None for those that all have.
        metrics: as the items of `evaluation.metrics`, in YAML; those of the first run where it is None.
        lowercase: blind to case, where a metric can be.
        tokenizer: sacreBLEU's, of BLEU.
        raw_weights: not their moving averages, where they have such.
        precision: see `zeromt translate`.
        search: fields of the runs' search sections to replace.
        bootstrap, randomisation: samples to draw; 0 for no such test.
        sentences: of each set to show.
        form: of what is printed; None for the terminal's, or for nothing where a page is written.
        html: a file for the page.

    Raises:
        UserError: see `trainer.comparison.comparison.compare`.
    """
    wanted = Wanted.of(metrics, tokenizer, lowercase=lowercase)
    named = [parse_set(text) for text in sets or ()]
    names = [one if isinstance(one, str) else one.name for one in named]
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise UserError(f"--set: {twice[0]} is given twice; allowed is once")
    check_apart(places_of(runs), {"--html": html})
    tune_process()
    found = compare(
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
        print(_shown(found, form), end="", flush=True)
    if html is not None:
        with written(html, "--html") as sink:
            sink.write(to_html(found))
    return 0


def report(*, run: str, **options: Any) -> int:
    """The same for one run; see `compare_runs`."""
    return compare_runs(runs=[run], **options)


def _shown(found: Comparison, form: str | None) -> str:
    if form == "json":
        return f"{to_json(dataclasses.asdict(found), indent=1)}\n"
    return to_markdown(found) if form == "markdown" else f"{to_terminal(found)}\n"
