"""What was verified rather than timed: nothing is lost, resumes and exports are equal."""

from benchmarks.report.section import Section
from benchmarks.report.tables import Table, column, newest

STORMS = Section(
    title="Is anything lost in a storm of faults?",
    lead="`python -m tests.verification.chaos`: loss, gradient norm, learning rate and pairs of every update, and the"
    " files of checkpoints, bit for bit against references that nothing disturbed.",
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
    title="Do resumes on other ranks and stages agree?",
    lead="`python -m tests.trainer.stability.elastic`: from each of several numbers of ranks and ZeRO stages to each "
    "of the same; the largest relative difference of a loss after the common checkpoint.",
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
    title="What exports translate",
    lead="`python -m tests.verification.export_equality RUN`: the exported folders in fp32 beside the run, through "
    "their own tokenizers; beam search by sums of log-probabilities and by their means.",
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
