"""Sections on decoding speed and translation quality."""

from typing import Any

from benchmarks.common.results import Result, Row
from benchmarks.report.plots import bars_side_by_side, curves
from benchmarks.report.section import MACHINE, Section, columns_of
from benchmarks.report.tables import Table, column, newest, on_each_machine, pivoted

DECODING = Section(
    title="How fast is decoding?",
    lead="Sentences a second with the same weights and number of threads. Each program ends a beam search by its own "
    "default rule. Targets apply to zeromt in the precision that `auto` selects on the processor.",
    tables=(
        Table(
            choice=pivoted(
                newest("decoding", needs=["sentences_per_second"]),
                over="search",
                by="program",
                keys=("sentences_per_second", "zeromt_fp32_over_this", "zeromt_bf16_over_this", "bleu"),
            ),
            columns=(
                column("program", "program"),
                *(
                    column(f"{key} of {search}", f"{search}: {header}", form)
                    for search in ("greedy", "beam 5")
                    for key, header, form in (
                        ("sentences_per_second", "sentences/s", ",.0f"),
                        ("zeromt_fp32_over_this", "speed-up of zeromt fp32", ",.2f"),
                        ("zeromt_bf16_over_this", "of zeromt bf16", ",.2f"),
                    )
                ),
                column("target", "target", ".2f"),
                column("bleu of beam 5", "BLEU, beam 5", ".2f"),
            ),
        ),
        *(
            Table(
                lead=f"Speed-up of zeromt {precision} on each processor, {search}:",
                choice=on_each_machine("decoding", columns_of(f"zeromt_{precision}_over_this", search=search)),
                columns=(
                    MACHINE,
                    *(
                        column(name, f"over {header}", ",.2f")
                        for name, header in (
                            ("transformers", "Transformers"),
                            ("eole", "Eole"),
                            ("ctranslate2", "CTranslate2"),
                            ("joeynmt", "JoeyNMT"),
                        )
                    ),
                ),
            )
            for precision in ("fp32", "bf16")
            for search in ("greedy", "beam 5")
        ),
    ),
    plot=bars_side_by_side(
        {f"sentences_per_second of {search}": search for search in ("greedy", "beam 5")}, "sentences a second"
    ),
    plot_name="decoding",
)


def _goals(result: Result) -> Row:
    """The row of a machine: the ratio for each seed."""
    found: dict[str, Any] = {f"seed {row['seed']}": row["ratio"] for row in result.part("goal")}
    return {"precision": result.settings["precision"], **found} if found else {}


TIME_TO_BLEU = Section(
    title="How soon is a BLEU reached?",
    lead="Seconds of training until a given corpus BLEU on the test set. zeromt and the plain loop train at the same "
    "time, with half of the threads each; both evaluate a moving average of the weights. With a ratio below one "
    "zeromt is faster.",
    tables=(
        Table(
            choice=newest("time_to_bleu", "goal", needs=["zeromt_seconds"]),
            columns=(
                column("seed", "seed", "d"),
                column("goal", "BLEU", ",.0f"),
                column("zeromt_seconds", "zeromt: s", ",.0f"),
                column("plain_loop_seconds", "plain loop: s", ",.0f"),
                column("ratio", "ratio", ".2f"),
            ),
        ),
        Table(
            lead="The ratio on each processor, by seed:",
            choice=on_each_machine("time_to_bleu", _goals),
            columns=(
                MACHINE,
                column("precision", "precision"),
                *(column(f"seed {n}", f"seed {n}", ".2f") for n in range(1, 10)),
            ),
        ),
    ),
    plot=curves("seconds", "seconds of training"),
    plot_name="time_to_bleu",
    plot_of=newest("time_to_bleu", "curve"),
)
QUALITY = Section(
    title="How good are the shipped runs?",
    lead="sacreBLEU on the test sets, and learning curves: greedy BLEU on the validation sets.",
    tables=(
        Table(
            choice=newest("quality", "scores"),
            columns=(
                column("run", "run"),
                column("test_set", "test set"),
                column("greedy", "BLEU, greedy", ".1f"),
                column("beam_5", "BLEU, beam 5", ".1f"),
                column("chrf", "chrF", ".1f"),
                column("seconds", "seconds of training", ",.0f"),
            ),
        ),
    ),
    plot=curves("updates", "updates"),
    plot_name="quality",
    plot_of=newest("quality", "curve"),
)
