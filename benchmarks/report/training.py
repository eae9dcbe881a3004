"""Sections on training: speed, ranks, growth, checkpoints, start-up, memory."""

from benchmarks.report.plots import bars, growth
from benchmarks.report.section import MACHINE, Section, columns_of
from benchmarks.report.tables import Table, column, newest, on_each_machine

SPEED = (column("peak_mib", "peak MiB"), column("waiting_for_data", "waiting for data", ".2%"))
TRAINING = Section(
    title="How fast is training compared with other programs?",
    lead="Target tokens a second, without padding, for the same model, pairs and number of threads. The plain loop is "
    "hand-written PyTorch. The second table has the speed-up of zeromt in fp32 over each program, on each processor.",
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
    lead="Target tokens a second of several ranks with one thread each, relative to one process with all threads: at "
    "one, sharding would cost nothing. The red mark is the target.",
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
    lead="Interleaved pairs of runs of both commits on the same machine: target tokens a second of this commit over "
    "those of the other (`python -m benchmarks.training.against COMMIT`).",
    tables=(
        Table(
            choice=newest("against"),
            columns=(
                column("pair", "pair"),
                column("this_tree", "this commit, target tokens/s"),
                column("other", "the other commit"),
                column("ratio", "ratio", ".3f"),
            ),
        ),
    ),
    if_empty="No result recorded yet.",
)
GROWTH = Section(
    title="How does training scale with model, batch and corpus?",
    lead="One quantity is varied at a time. FLOPs are those of `zeromt plan`, padding included. Where FLOP/s fall, "
    "time grows faster than the work.",
    tables=(
        Table(
            choice=newest("growth", "growth", needs=["tokens_per_second", "of_the_base"]),
            columns=(
                column("varied", "varied"),
                column("value", "to"),
                column("seconds_per_update", "s/update", ".3f"),
                column("tokens_per_second", "target tokens/s"),
                column("peak_mib", "peak MiB"),
                column("gflop_per_second", "GFLOP/s", ",.1f"),
                column("of_the_base", "relative to the base", ".2f"),
            ),
        ),
        Table(
            lead="Nothing may grow with the size of the corpus, which is repeated; seconds are to the first update.",
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
    lead="How long training pauses for a save in the background and for a blocking save. The files are byte-identical.",
    tables=(
        Table(
            choice=newest("checkpoints", "saves"),
            columns=(
                column("way", "way"),
                column("stands_still_seconds", "training pauses: s", ".2f"),
                column("committed_seconds", "until committed: s", ".2f"),
            ),
        ),
        Table(
            choice=newest("checkpoints", "ratio"),
            columns=(column("blocking_over_background", "blocking over background", ".1f"),),
        ),
        Table(
            lead="Where the time of a whole run with evaluation and checkpoints goes, according to its ledger:",
            choice=newest("goodput"),
            columns=(column("what", "what"), column("share", "of the run's time", ".1%")),
        ),
    ),
    plot=bars("stands_still_seconds", "seconds that training pauses", by="way"),
    plot_name="checkpoints",
)
STARTUP = Section(
    title="How long is it until the first update?",
    lead="Seconds from the command to the end of the first update, with warm caches; then the parts of zeromt's time.",
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
            columns=(column("what", "part of zeromt train"), column("seconds", "seconds", ",.2f")),
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
    lead="Forward and backward of one micro-batch. The gradients of weight and hidden states are a lower bound; the "
    "last table is the memory above that bound with chunks, relative to that with all logits at once.",
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
            columns=(
                column("left", "chunks relative to all at once", ".1%"),
                column("target", "target, at most", ".1%"),
            ),
        ),
    ),
)
DEVICE = Section(
    title="How fast is it on GPUs?",
    lead="Training of shipped runs in bf16 on synthetic sentences: `python -m benchmarks.device.training`.",
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
    if_empty="Nothing has been measured on a GPU yet.",
)
