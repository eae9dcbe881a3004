"""How data is prepared, read and planned."""

from benchmarks.report.plots import grouped
from benchmarks.report.section import Section
from benchmarks.report.tables import Table, column, newest

BATCHES = ("random", "sorted", "K = 1", "K = 2", "K = 8", "K = 2, multiples of 8")
PADDING = Section(
    title="How much is padding?",
    lead="The part of all positions that is padding, both sides together, of batches in random order, sorted by "
    "length, and as zeromt plans them for K micro-batches an update. Each of K lanes plans its own part, so "
    "padding grows with K where the corpus is small.",
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
    lead="Preparation with a given tokenizer, beside SentencePiece alone on lines in memory:",
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
            lead="Bytes a pair on disk, beside one pair a sample as `webdataset.TarWriter` writes it:",
            choice=newest("data", "disk"),
            columns=(
                column("text", "text"),
                column("tokens_a_pair", "pieces a pair", ".1f"),
                column("zeromt_bytes", "zeromt", ",.1f"),
                column("one_pair_bytes", "one pair a sample", ",.1f"),
                column("times", "times", ",.0f"),
            ),
        ),
        Table(
            lead="Tokens a second of batches read, both sides without padding, planning included:",
            choice=newest("data", "reading"),
            columns=(
                column("text", "text"),
                column("zeromt", "zeromt, in the loop"),
                column("webdataset", "webdataset, one pair a sample"),
                column("times", "times", ",.0f"),
                column("two_processes", "zeromt, loader processes"),
            ),
        ),
        Table(
            lead="What a trainer consumes of that, on the same machine:",
            choice=newest("data", "trainer"),
            columns=(
                column("tokens_per_second", "tokens/s"),
                column("waiting_for_data", "waiting for data", ".2%"),
            ),
        ),
        Table(
            lead="What the ranks of a world read together in an epoch, over the bytes of the shards:",
            choice=newest("data", "all ranks"),
            columns=(column("ranks", "ranks", "d"), column("times_the_shards", "times the shards", ".3f")),
        ),
    ),
)
MEMORY = Section(
    title="Does memory grow with the corpus?",
    lead="A reader's anonymous memory over an epoch:",
    tables=(
        Table(
            choice=newest("data", "memory"),
            columns=(column("pairs", "pairs"), column("anonymous_mib", "anonymous MiB", ",.1f")),
        ),
        Table(
            lead="Peak memory of preparation with the tokenizer's training, all processes together:",
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
    lead="One rank's work by the number of lanes K:",
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
            lead="How windows shuffle (a full permutation has distance one between neighbours) and pad:",
            choice=newest("planner", "shuffling"),
            columns=(
                column("window_pairs", "window of pairs"),
                column("distance", "distance", ".3f"),
                column("same_block", "neighbours from one block", ".1%"),
                column("padding", "padding", ".1%"),
            ),
        ),
        Table(
            lead="Empty micro-batches at the end of an epoch, by what a lane has:",
            choice=newest("planner", "empty"),
            columns=(column("blocks_a_lane", "blocks a lane", ",.1f"), column("empty", "empty", ".1%")),
        ),
    ),
)
