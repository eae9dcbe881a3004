"""Sections on verification: faults, resumes with other layouts, exports."""

from benchmarks.report.section import Section
from benchmarks.report.tables import Table, column, newest

STORMS = Section(
    title="Is anything lost under random faults?",
    lead="`python -m tests.verification.chaos`: loss, gradient norm, learning rate and pairs of every update, and all "
    "checkpoint files, compared bit for bit with undisturbed runs.",
    tables=(
        Table(
            choice=newest("storms", "storms"),
            columns=(
                column("seed", "seed", "d"),
                column("launches_and_starts", "launches, starts"),
                column("sigkill_rank_agent_launcher_all", "SIGKILL: rank, agent, launcher, all"),
                column("requests_to_stop", "requests to stop"),
                column("full_disks", "full disks"),
                column("damage_to_checkpoints_and_pointer", "damage: checkpoints, pointer"),
                column("updates_trained_redone", "updates (redone)"),
                column("bit_equal_updates_and_checkpoints", "bit-equal updates, checkpoints"),
                column("changes_of_layout_and_largest_difference", "changes of layout: largest difference of losses"),
                column("verdict", "verdict"),
            ),
        ),
    ),
)
ELASTIC = Section(
    title="Do resumes with other ranks and ZeRO stages agree?",
    lead="`python -m tests.trainer.stability.elastic`: resumes from each of several layouts (ranks and ZeRO stage) to "
    "each other; the largest relative difference of a loss after the common checkpoint.",
    tables=(
        Table(
            choice=newest("elastic"),
            columns=(
                column("precision", "precision"),
                column("pairs_of_layouts", "pairs of layouts"),
                column("largest_difference", "largest difference", ".2e"),
                column("allowed", "allowed", ".0e"),
                column("undisturbed_runs_differ_by", "undisturbed runs differ by", ".2e"),
            ),
        ),
    ),
)
EXPORTS = Section(
    title="Do exports translate as the run does?",
    lead="`python -m tests.verification.export_equality RUN`: the exported folders in fp32, with their own tokenizers, "
    "compared with the run; beam search by sums and by means of log-probabilities.",
    tables=(
        Table(
            choice=newest("exports"),
            columns=(
                column("program", "program"),
                column("greedy_differ", "greedy: differ from zeromt", "d"),
                column("bleu_sums", "sums: BLEU", ".2f"),
                column("same_sums", "the same translations"),
                column("bleu_means", "means: BLEU", ".2f"),
                column("same_means", "the same translations"),
            ),
        ),
    ),
)
