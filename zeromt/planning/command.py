"""The command `zeromt plan`: makes a report from the arguments."""

import dataclasses
from collections.abc import Sequence
from typing import TypedDict, Unpack, cast

from configs import RunConfig, UserError, load_run
from configs.load import dump_changed
from configs.process.files.inside import written
from configs.process.text import to_json
from launcher.options.parser import Parser, read_arguments
from model.gpus import GPUS
from zeromt.planning import alone, report
from zeromt.planning.alternatives import changes
from zeromt.planning.corpus import read_corpus
from zeromt.planning.costs.memory import usable_memory
from zeromt.planning.estimate import Estimate, Planner, Prices
from zeromt.planning.hardware import DEFAULT_MFU, Cluster
from zeromt.planning.options import add_plan
from zeromt.planning.trajectory import MAX_MICRO_BATCHES

TABLE = tuple(2**n for n in range(3, 13))
"""The numbers of GPUs in the rows of `--table`."""


class Options(TypedDict):
    """The command-line options about the cluster and prices; see `zeromt.planning.options`."""

    nodes: int | None
    gpus_per_node: int | None
    gpu_memory: int | None
    gpu: str
    peak_tflops: float | None
    mfu: float | None
    intra_bandwidth: int | None
    inter_bandwidth: int
    storage: int
    mtbf: tuple[float | None, float | None]
    restart_minutes: float
    length: float | None
    padding: float
    price: float | None
    watts: float | None
    kwh_price: float | None
    tokens: int | None
    epochs: float | None


def run(
    *,
    config: str,
    overrides: Sequence[str],
    plugins: Sequence[str],
    as_json: bool,
    table: bool,
    write: str | None,
    **options: Unpack[Options],
) -> int:
    """Plan a run and print the report; without a cluster, what this machine and one common card would make of it.

    Raises:
        UserError: the configuration or an option is wrong, or the run does not fit into memory.
    """
    run_config = load_run(config, overrides, plugins=plugins)
    planner, cluster = _planned(run_config, options)
    has_cluster = options["nodes"] is not None or options["gpus_per_node"] is not None
    if not (has_cluster or as_json or table or write is not None):
        print(alone.text(planner, options["gpu"], cluster, alone.this_machine(), config), flush=True)
        return 0
    estimate = planner.estimate(cluster)
    if estimate is None:
        raise does_not_fit(planner, cluster)
    rows = [(number, planner.estimate(cluster.resized(number))) for number in TABLE] if table else []
    changed = changes(run_config, estimate)
    if as_json:
        print(to_json(report.tree(planner, estimate, rows), indent=2), flush=True)
    else:
        print(report.text(planner, estimate, rows, changed=changed, written=write), flush=True)
    if write is not None:
        with written(write, "--write") as file:
            files = [plugin.file for plugin in run_config.plugins if plugin.file is not None]
            file.write(dump_changed(config, overrides, changed, plugins=files))
    return 0


def on_one_gpu(config: RunConfig) -> Estimate | None:
    """The plan of a run on one GPU, by the command's defaults; None if it does not fit."""
    parser = Parser(prog="zeromt plan")
    add_plan(parser)
    options = read_arguments(parser, ["-"])
    planner, cluster = _planned(config, cast("Options", options))
    return planner.estimate(cluster)


def _planned(config: RunConfig, options: Options) -> tuple[Planner, Cluster]:
    """The planner of a run, and the cluster of the options."""
    precision = "bf16" if config.engine.precision == "auto" else config.engine.precision  # as on a GPU
    cluster = _cluster(options, precision)
    corpus = read_corpus(config, length=options["length"])
    if options["epochs"] is not None and corpus.epoch_tokens is None:
        raise UserError(
            f"--epochs: {options['epochs']:g}, but the size of an epoch is not known, because a prepared dataset is "
            "missing; give --tokens, or a prepare.output that exists"
        )
    return Planner(config, corpus, _prices(options), precision=precision), cluster


def _cluster(options: Options, precision: str) -> Cluster:
    nodes, per_node, known = options["nodes"] or 1, options["gpus_per_node"] or 1, GPUS[options["gpu"]]
    if nodes * per_node > MAX_MICRO_BATCHES:  # each needs a micro-batch of its own
        raise UserError(
            f"--nodes: {nodes} nodes with {per_node} GPUs each are {nodes * per_node} GPUs; "
            f"allowed are at most {MAX_MICRO_BATCHES} GPUs"
        )
    return Cluster(
        nodes=nodes,
        gpus_per_node=per_node,
        gpu_memory=options["gpu_memory"] or known.memory,
        peak_flops=1e12 * (options["peak_tflops"] or known.tflops(precision)),
        mfu=options["mfu"] or DEFAULT_MFU,
        is_mfu_given=options["mfu"] is not None,
        intra_bandwidth=options["intra_bandwidth"] or known.intra_bandwidth,
        inter_bandwidth=options["inter_bandwidth"],
        storage_bandwidth=options["storage"],
        gpu_mtbf=options["mtbf"][0],
        node_mtbf=options["mtbf"][1],
        restart=60 * options["restart_minutes"],
    )


def _prices(options: Options) -> Prices:
    return Prices(
        gpu_hour=options["price"],
        kwh=options["kwh_price"],
        watts=options["watts"] or GPUS[options["gpu"]].watts,
        tokens=options["tokens"],
        epochs=options["epochs"],
        padding=options["padding"],
    )


def does_not_fit(planner: Planner, cluster: Cluster) -> UserError:
    """The error if no setting fits: it names the smallest memory that would be enough."""
    low, high = cluster.gpu_memory, cluster.gpu_memory
    while planner.choose(dataclasses.replace(cluster, gpu_memory=high)) is None:
        low, high = high, 2 * high
    while high - low > 10**8:
        middle = (low + high) // 2
        fits = planner.choose(dataclasses.replace(cluster, gpu_memory=middle)) is not None
        low, high = (low, middle) if fits else (middle, high)
    tensors = max(usable_memory(cluster.gpu_memory), 0)
    return UserError(
        f"--gpu-memory: {cluster.gpu_memory / 1e9:g}GB ({tensors / 1e9:.3g}GB for tensors) is too small for a pair of "
        f"{planner.longest} tokens at any ZeRO stage on {cluster.num_gpus} GPUs; use GPUs with at least "
        f"{high / 1e9:.1f}GB, more GPUs, or a smaller model"
    )
