"""The command `zeromt plan`: makes a report from the arguments."""

import dataclasses
from collections.abc import Sequence
from typing import TypedDict, Unpack, cast

from configs import RunConfig, UserError, load_run
from configs.process.text import to_json
from launcher.options.parser import Parser, read_arguments
from model.gpus import GPUS
from zeromt.planning import report
from zeromt.planning.corpus import read_corpus
from zeromt.planning.costs.memory import usable_memory
from zeromt.planning.estimate import Estimate, Planner
from zeromt.planning.hardware import DEFAULT_MFU, Cluster
from zeromt.planning.options import add_plan
from zeromt.planning.trajectory import MAX_MICRO_BATCHES


class Options(TypedDict):
    """The command-line options about the cluster; see `zeromt.planning.options`."""

    nodes: int
    gpus_per_node: int
    gpu_memory: int | None
    gpu: str
    peak_tflops: float | None
    mfu: float | None
    intra_bandwidth: int | None
    inter_bandwidth: int
    length: float | None
    padding: float


def run(
    *,
    config: str,
    overrides: Sequence[str],
    plugins: Sequence[str],
    as_json: bool,
    **options: Unpack[Options],
) -> int:
    """Plan a run and print the report.

    Raises:
        UserError: the configuration or an option is wrong, or the run does not fit into memory.
    """
    run_config = load_run(config, overrides, plugins=plugins)
    planner, cluster = _planned(run_config, options)
    estimate = planner.estimate(cluster)
    if estimate is None:
        raise does_not_fit(planner, cluster)
    print(to_json(report.tree(planner, estimate), indent=2) if as_json else report.text(planner, estimate), flush=True)
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
    return Planner(config, corpus, precision=precision, padding=options["padding"]), cluster


def _cluster(options: Options, precision: str) -> Cluster:
    nodes, per_node, known = options["nodes"], options["gpus_per_node"], GPUS[options["gpu"]]
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
