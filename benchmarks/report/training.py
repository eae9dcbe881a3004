"""How fast training is, how it grows, and what stands beside it."""

from benchmarks.report.plots import bars, growth
from benchmarks.report.section import MACHINE, Section, columns_of
from benchmarks.report.tables import Table, column, newest, on_each_machine

SPEED = (column("peak_mib", "peak MiB"), column("waiting_for_data", "waiting for data", ".2%"))
TRAINING = Section(
    title="How fast is training beside others?",
    lead="Target tokens a second, without padding, of the same model on the same pairs with as many threads. The "
    "plain loop is plain torch by hand. The second table has how many times as fast zeromt is in fp32, on each "
    "processor.",
    tables=(
        Table(
            choice=newest("training", "programs", needs=["tokens_per_second"]),
            columns=(
                column("program", "program"),
                column("tokens_per_second", "target tokens/s"),
                column("zeromt_over_this", "speed-up of zeromt fp32", ",.2f"),
                column("target", "target", ".2f"),
                *SPEED,
                column("logging", "logging every update", ".2%"),
            ),
        ),
        Table(
            choice=on_each_machine("training", columns_of("zeromt_over_this")),
            columns=(
                MACHINE,
                column("plain loop", "over the plain loop", ".2f"),
                column("eole", "Eole", ".2f"),
                column("transformers", "Transformers", ".2f"),
                column("joeynmt", "JoeyNMT", ".2f"),
            ),
        ),
        Table(
            lead="Other ratios of the newest result:",
            choice=newest("training", "ratios"),
            columns=(
                column("program", "program"),
                column("of", "over"),
                column("ratio", "speed-up", ".2f"),
                column("target", "target", ".2f"),
            ),
        ),
    ),
    plot=bars("tokens_per_second", "target tokens a second"),
    plot_name="training",
)
RANKS = Section(
    title="What do several ranks cost?",
    lead="Target tokens a second of ranks with a thread each, over those of one process with all of the threads: at "
    "one, sharding would be free. The red mark is the target.",
    tables=(
        Table(
            choice=newest("ranks", needs=["of_one_process"]),
            columns=(
                column("program", "ZeRO stage"),
                column("of_one_process", "of one process", ".2f"),
                column("target", "target", ".2f"),
                column("tokens_per_second", "target tokens/s"),
                *SPEED,
                column("logging", "logging every update", ".2%"),
            ),
        ),
        Table(
            choice=on_each_machine("ranks", columns_of("of_one_process")),
            columns=(MACHINE, *(column(f"ZeRO-{stage}", f"ZeRO-{stage}", ".2f") for stage in range(4))),
        ),
    ),
    plot=bars("of_one_process", "of one process", target="target"),
    plot_name="ranks",
)
AGAINST = Section(
    title="Did speed change since an earlier commit?",
    lead="Interleaved pairs of runs of both trees on the same machine: target tokens a second of this one over those "
    "of the other (`python -m benchmarks.training.against COMMIT`).",
    tables=(
        Table(
            choice=newest("against"),
            columns=(
                column("pair", "pair"),
                column("this_tree", "this tree, target tokens/s"),
                column("other", "the other"),
                column("ratio", "ratio", ".3f"),
            ),
        ),
    ),
    otherwise="Not kept yet.",
)
GROWTH = Section(
    title="How does it grow?",
    lead="One thing is varied at a time. Floating-point operations are those that `zeromt plan` counts, padding "
    "included: where their rate falls, time grows faster than the work.",
    tables=(
        Table(
            choice=newest("growth", "growth", needs=["tokens_per_second", "of_the_base"]),
            columns=(
                column("varied", "varied"),
                column("value", "to"),
                column("seconds_per_update", "s an update", ".3f"),
                column("tokens_per_second", "target tokens/s"),
                column("peak_mib", "peak MiB"),
                column("gflop_per_second", "GFLOP/s", ",.1f"),
                column("of_the_base", "of the base's", ".2f"),
            ),
        ),
        Table(
            lead="With the corpus nothing may grow: the same one, repeated, from the command to the first update.",
            choice=newest("growth", "corpus", needs=["new_run_seconds", "tokens_per_second"]),
            columns=(
                column("pairs", "pairs"),
                column("new_run_seconds", "new run: s", ".2f"),
                column("resumed_seconds", "resumed: s", ".2f"),
                column("tokens_per_second", "target tokens/s"),
                column("peak_mib", "peak MiB"),
            ),
        ),
    ),
    plot=growth,
    plot_name="growth",
)
CHECKPOINTS = Section(
    title="What does a checkpoint cost?",
    lead="How long training stands still for a save that is written in the background, and for one that it waits for."
    " The files are the same to the byte.",
    tables=(
        Table(
            choice=newest("checkpoints", "saves"),
            columns=(
                column("way", "way"),
                column("stands_still_seconds", "training stands still: s", ".2f"),
                column("committed_seconds", "until committed: s", ".2f"),
            ),
        ),
        Table(
            choice=newest("checkpoints", "ratio"),
            columns=(column("blocking_over_background", "blocking over background", ".1f"),),
        ),
        Table(
            lead="Where the time of a whole run goes, by its ledger, with evaluation and checkpoints:",
            choice=newest("goodput"),
            columns=(column("what", "what"), column("share", "of the run's time", ".1%")),
        ),
    ),
    plot=bars("stands_still_seconds", "seconds that training stands still", by="way"),
    plot_name="checkpoints",
)
STARTUP = Section(
    title="How long is it until the first update?",
    lead="Seconds from the command to the end of the first update, with warm caches; then what zeromt spends them on,"
    " by a clock around its parts.",
    tables=(
        Table(
            choice=newest("startup", "programs"),
            columns=(
                column("program", "program"),
                column("seconds", "seconds", ",.2f"),
                column("target", "target", ",.0f"),
            ),
        ),
        Table(
            choice=newest("startup", "of zeromt train"),
            columns=(column("what", "of zeromt train"), column("seconds", "seconds", ",.2f")),
        ),
        Table(
            choice=on_each_machine("startup", columns_of("seconds", part="programs")),
            columns=(
                MACHINE,
                *(
                    column(name, name, ",.2f")
                    for name in ("zeromt train", "zeromt launch local --nproc 2", "plain loop", "eole")
                ),
            ),
        ),
    ),
    plot=bars("seconds", "seconds to the first update"),
    plot_name="startup",
)
LOSS_MEMORY = Section(
    title="How much memory do the output layer and its loss take?",
    lead="Forward and backward of one micro-batch. What no way can go below are the gradients of weight and hidden "
    "states; the last table is what chunks leave of the memory above that.",
    tables=(
        Table(
            choice=newest("loss_memory", "ways", needs=["peak_mib"]),
            columns=(
                column("loss", "loss"),
                column("peak_mib", "peak MiB"),
                column("above_mib", "above the gradients: MiB"),
                column("seconds", "seconds", ",.1f"),
            ),
        ),
        Table(
            choice=newest("loss_memory", "left"),
            columns=(column("left", "left with chunks", ".1%"), column("target", "target, at most", ".1%")),
        ),
    ),
)
DEVICE = Section(
    title="How fast is it on GPUs?",
    lead="Training in bf16 on made-up sentences of the shipped runs' lengths: `python -m benchmarks.device.training`.",
    tables=(
        Table(
            choice=newest("device_training"),
            columns=(
                column("run", "run"),
                column("program", "program"),
                column("tokens_per_second", "target tokens/s"),
                column("mfu", "MFU", ".1%"),
                column("peak_gib", "peak GiB", ",.2f"),
                column("planned_gib", "planned GiB", ",.2f"),
            ),
        ),
    ),
    otherwise="Nothing has been measured on a GPU yet.",
)
