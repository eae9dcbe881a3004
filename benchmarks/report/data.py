"""Sections on data preparation, reading and planning."""

from benchmarks.report.plots import grouped
from benchmarks.report.section import Section
from benchmarks.report.tables import Table, column, newest

BATCHES = ("random", "sorted", "K = 1", "K = 2", "K = 8", "K = 2, multiples of 8")
PADDING = Section(
    title="How much is padding?",
    lead="The fraction of padding on both sides together: batches in random order, sorted by length, and as zeromt "
    "plans them with K micro-batches per update. Each of the K lanes plans its own part of the corpus, so padding "
    "grows with K if the corpus is small.",
    tables=(
        Table(
            choice=newest("data", "padding"),
            columns=(column("text", "text"), *(column(name, name, ".2%") for name in BATCHES)),
        ),
    ),
    plot=grouped(BATCHES[:5], "padding", by="text"),
    plot_name="padding",
)
DATA = Section(
    title="How fast is data prepared and read?",
    lead="Preparation with a given tokenizer, compared with SentencePiece alone on lines in memory:",
    tables=(
        Table(
            choice=newest("data", "preparation"),
            columns=(
                column("way", "way"),
                column("pairs_per_second", "pairs/s"),
                column("tokens_per_second", "tokens/s"),
                column("of_sentencepiece", "of SentencePiece", ".0%"),
            ),
        ),
        Table(
            lead="Bytes per pair on disk, compared with one pair per sample as `webdataset.TarWriter` writes it:",
            choice=newest("data", "disk"),
            columns=(
                column("text", "text"),
                column("tokens_a_pair", "pieces per pair", ".1f"),
                column("zeromt_bytes", "zeromt", ",.1f"),
                column("one_pair_bytes", "one pair per sample", ",.1f"),
                column("times", "times", ",.0f"),
            ),
        ),
        Table(
            lead="Tokens read a second on both sides, without padding, planning included:",
            choice=newest("data", "reading"),
            columns=(
                column("text", "text"),
                column("zeromt", "zeromt, in the loop"),
                column("webdataset", "webdataset, one pair per sample"),
                column("times", "times", ",.0f"),
                column("two_processes", "zeromt, loader processes"),
            ),
        ),
        Table(
            lead="Tokens a second that a trainer consumes on the same machine:",
            choice=newest("data", "trainer"),
            columns=(
                column("tokens_per_second", "tokens/s"),
                column("waiting_for_data", "waiting for data", ".2%"),
            ),
        ),
        Table(
            lead="Bytes that all ranks together read in an epoch, relative to the bytes of the shards:",
            choice=newest("data", "all ranks"),
            columns=(column("ranks", "ranks", "d"), column("times_the_shards", "times the shards", ".3f")),
        ),
    ),
)
MEMORY = Section(
    title="Does memory grow with the corpus?",
    lead="Anonymous memory of a reader over an epoch:",
    tables=(
        Table(
            choice=newest("data", "memory"),
            columns=(column("pairs", "pairs"), column("anonymous_mib", "anonymous MiB", ",.1f")),
        ),
        Table(
            lead="Peak memory of preparation, tokenizer training included, all processes together:",
            choice=newest("preparation_memory"),
            columns=(
                column("pairs", "pairs"),
                column("text_mb", "text: MB"),
                column("seconds", "seconds"),
                column("peak_mib", "peak MiB (PSS)"),
                column("times_the_first", "times the first", ",.3f"),
                column("largest_process_mib", "largest process: MiB"),
                column("processes", "processes", "d"),
            ),
        ),
    ),
)
PLANNER = Section(
    title="Does the planner scale to a web-crawled corpus?",
    lead="Time and memory of one rank, by the number of lanes K:",
    tables=(
        Table(
            choice=newest("planner", "one rank"),
            columns=(
                column("lanes", "K"),
                column("open_seconds", "open: s", ".2f"),
                column("construct_seconds", "construct: s", ".2f"),
                column("deal_seconds", "deal a pass: s", ".2f"),
                column("window_seconds", "plan a window: s", ".2f"),
                column("anonymous_mib", "anonymous MiB"),
                column("resident_mib", "with mapped files"),
            ),
        ),
        Table(
            lead="Resuming in the middle of an epoch:",
            choice=newest("planner", "resume"),
            columns=(column("update", "update"), column("seconds", "seconds", ".3f")),
        ),
        Table(
            lead="Shuffling (a full permutation has a distance of one between neighbours) and padding by window size:",
            choice=newest("planner", "shuffling"),
            columns=(
                column("window_pairs", "window of pairs"),
                column("distance", "distance", ".3f"),
                column("same_block", "neighbours from one block", ".1%"),
                column("padding", "padding", ".1%"),
            ),
        ),
        Table(
            lead="Empty micro-batches at the end of an epoch, by blocks per lane:",
            choice=newest("planner", "empty"),
            columns=(column("blocks_a_lane", "blocks per lane", ",.1f"), column("empty", "empty", ".1%")),
        ),
    ),
)
