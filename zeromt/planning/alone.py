"""`zeromt plan CONFIG` alone: does this machine do, does one card, and from how many on are updates others?"""

import dataclasses
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from configs.process.gpus import list_cards, num_usable
from configs.process.text import yaml_scalar
from launcher.machine.cores import num_cores
from model.gpus import known_gpu
from trainer.ranks.host_memory import available
from zeromt.planning.alternatives import changes
from zeromt.planning.costs.memory import Setting, usable_memory
from zeromt.planning.estimate import Estimate, Planner
from zeromt.planning.hardware import Cluster
from zeromt.planning.report import GIB, duration, whose_mfu
from zeromt.planning.trajectory import split_update

NUMBERS = tuple(2**n for n in range(13))
"""Of GPUs that are tried, in nodes of `PER_NODE`."""
PER_NODE = 8
TOLD = (2, 4, 8)
"""Numbers of GPUs whose time is told beside that of one."""
RANK_BYTES = 10**9
"""Memory of a rank on a CPU besides its model: Python, torch, the reader."""
PATIENCE_DAYS = 7.0
"""A run that takes one GPU longer than this is not said to need but one."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Machine:
    """What this machine has."""

    gpus: int
    card: str = ""
    """The driver's name of a GPU."""
    card_memory: int = 0
    """Bytes."""
    cores: int = 1
    free: int = 0
    """Bytes of free memory."""


def this_machine() -> Machine:
    """What ranks can use here, by the drivers and the kernel; without torch."""
    gpus = num_usable()
    cards = list_cards() if gpus else []
    if not cards:
        return Machine(gpus=0, cores=num_cores(), free=available() or 0)
    name, memory = min(cards, key=lambda card: card[1])
    return Machine(gpus=gpus, card=name, card_memory=memory)


def text(planner: Planner, card: str, cluster: Cluster, machine: Machine, config: str) -> str:
    """The answer, a paragraph for each question.

    Args:
        planner: the run's.
        card: name of the common card.
        cluster: one of it.
        machine: this one.
        config: as it was named.
    """
    paragraphs = _lines(planner, card, cluster, machine, config)
    return "\n".join(textwrap.fill(line, 118, subsequent_indent="    ", break_on_hyphens=False) for line in paragraphs)


def _lines(planner: Planner, card: str, cluster: Cluster, machine: Machine, config: str) -> Iterator[str]:
    plans = {n: planner.estimate(dataclasses.replace(cluster, gpus_per_node=PER_NODE).resized(n)) for n in NUMBERS}
    yield f"this machine: {_here(planner, cluster, machine)}"
    one = plans[1]
    yield f"one {card}: {_plan(one) if one is not None else _too_small(plans)}"
    if one is not None:
        yield f"one GPU {_enough(planner, one, plans)}"
    yield from _more(planner, plans)
    all_of_it = f"zeromt plan {config} --nodes 1 --gpus-per-node {PER_NODE} --gpu {card}"
    yield f"all of it: {all_of_it}; times: at an MFU of {cluster.mfu:.3g}, {whose_mfu(cluster)}"


def _here(planner: Planner, cluster: Cluster, machine: Machine) -> str:
    if machine.gpus == 0:
        return _on_cpus(planner, machine)
    known = known_gpu(machine.card)
    here = dataclasses.replace(cluster, gpus_per_node=machine.gpus, gpu_memory=machine.card_memory)
    if known is not None:
        speed = 1e12 * known.tflops(planner.precision)
        here = dataclasses.replace(here, peak_flops=speed, intra_bandwidth=known.intra_bandwidth)
    what = f"{machine.gpus} x {machine.card}: "
    if (estimate := planner.estimate(here)) is None:
        return f"{what}too small for the model with one pair, at any ZeRO stage"
    return what + _plan(estimate, is_timed=known is not None)


def _on_cpus(planner: Planner, machine: Machine) -> str:
    config = planner.config
    ranks = min(machine.cores, config.stream.micro_batches)
    split = split_update(config.stream, ranks, most=1 << 62, longest=planner.longest)
    assert split is not None
    engine = config.engine
    setting = Setting(
        stage=engine.zero_stage,
        offload=engine.offload_optimizer,
        checkpointing=config.model.activation_checkpointing,
    )
    needed = ranks * (planner.memory(setting, split, ranks).peak + RANK_BYTES)
    fits = "enough" if needed <= machine.free else "too little: fewer ranks (--nproc) or tokens (stream.target_tokens)"
    return (
        f"no GPU; {ranks} ranks on {machine.cores} cores need about {needed / GIB:.1f} of the {machine.free / GIB:.1f} "
        f"GiB that are free: {fits}; how fast they are is not estimated"
    )


def _plan(estimate: Estimate, *, is_timed: bool = True) -> str:
    cut, memory = estimate.micro_batches, estimate.memory
    updates = "updates as configured" if cut.is_same else f"{cut.number} micro-batches of {cut.target_tokens:,} tokens"
    time = duration(86_400 * estimate.days) if is_timed else "time not known for this card (--gpu, --peak-tflops)"
    usable = usable_memory(estimate.cluster.gpu_memory)
    return f"{memory.setting}, {time}, {memory.peak / GIB:.1f} of {usable / GIB:.1f} GiB, {updates}"


def _too_small(plans: Mapping[int, Estimate | None]) -> str:
    found = next(((n, plan) for n, plan in plans.items() if plan is not None), None)
    if found is None:
        return "too small for the model with one pair, and so are more of them; see --gpu-memory"
    return f"too small for the model with one pair; {found[0]} of them: {_plan(found[1])}"


def _enough(planner: Planner, one: Estimate, plans: Mapping[int, Estimate | None]) -> str:
    times = ", ".join(f"{n} GPUs {duration(86_400 * plan.days)}" for n in TOLD if (plan := plans[n]) is not None)
    verdict = "is enough" if one.days <= PATIENCE_DAYS else f"holds the run, and takes {one.days:.0f} days"
    if change := _change(planner, one):
        verdict += f", {'quickest ' if one.micro_batches.is_same else ''}with {change}"
    return f"{verdict}; for comparison: {times}"


def _more(planner: Planner, plans: Mapping[int, Estimate | None]) -> Iterator[str]:
    """From how many GPUs on updates are cut otherwise, and from how many on they are larger than configured."""
    stream = planner.config.stream
    same = [n for n, plan in plans.items() if plan is not None and plan.micro_batches.is_same]
    other = [n for n, plan in plans.items() if plan is not None and n > stream.micro_batches]
    if same:
        said = f"more GPUs: up to {stream.micro_batches} make the same updates (stream.micro_batches)"
        if other and not _larger(plans[other[0]]):
            said += f"; for {other[0]} give {_change(planner, plans[other[0]])}: the same tokens, cut otherwise"
        yield said
    first = next((n for n, plan in plans.items() if _larger(plan)), None)
    if first is not None and (plan := plans[first]) is not None:
        yield (
            f"another recipe: from {first} GPUs on an update has {plan.micro_batches.update_tokens:,} target tokens, "
            f"and {stream.micro_batches * stream.target_tokens:,} are configured, since each needs a micro-batch that "
            f"holds the longest pair; use at most {first // 2}, or lower prepare.max_pieces "
            f"({planner.config.prepare.max_pieces}); else choose optimizer.lr and training.max_updates anew"
        )


def _larger(plan: Estimate | None) -> bool:
    return plan is not None and plan.micro_batches.is_larger


def _change(planner: Planner, plan: Estimate | None) -> str:
    """The settings of a plan that are configured otherwise, as they are typed; without how often to save."""
    changed: dict[str, Any] = {} if plan is None else changes(planner.config, plan)
    named: Sequence[str] = [key for key in changed if not key.startswith("checkpoint.")]
    return " ".join(f"{key}={yaml_scalar(changed[key])}" for key in named)
