"""How much a training asks for, and whether that fits the run: checked before anything is sent."""

import math
import os
from pathlib import Path

from configs import RunConfig, UserError
from launcher.slurm.profile import Profile
from launcher.slurm.script import most_nodes
from trainer.runs.metrics_file import slowest_save

_SHORTEST_LEAD, _LONGEST_LEAD, _SAVES_IN_THE_LEAD = 300, 65_535, 3
"""Seconds; the longest lead that sbatch accepts."""


def check_size(run: RunConfig, site: Profile, nodes: str, nproc: int) -> None:
    """Refuse what does not fit.

    Args:
        run: to be sent.
        site: with the GPUs of a node.
        nodes: a number, or MIN-MAX.
        nproc: ranks on each; 0 if only the nodes know.

    Raises:
        UserError: more ranks than the stream has lanes, or than there are GPUs; or a folder that cannot be written.
    """
    lanes, most, each = run.stream.micro_batches, most_nodes(nodes), max(nproc, 1)
    if 0 < site.gpus_per_node < nproc:
        raise UserError(
            f"--nproc: {nproc} is more than the GPUs of a node; allowed is 1 to {site.gpus_per_node}, or give "
            "--gpus-per-node"
        )
    if most * each > lanes:
        raise UserError(
            f"--nodes: {most} with {each} processes each is more than stream.micro_batches={lanes}; ask for fewer, or "
            f"set stream.micro_batches={most * each} and smaller source_tokens and target_tokens"
        )
    folder = Path(run.folder).absolute()
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"output: {str(there)!r} cannot be written; choose a folder that can")


def choose_lead(site: Profile, metrics: Path) -> int:
    """Seconds between the warning and the time limit: the profile's, or three times the run's slowest save so far.

    Args:
        site: the profile.
        metrics: the run's metrics.jsonl, which need not be there.

    Raises:
        UserError: the time limit leaves no time to train, or the lead no time to save.
    """
    slowest = slowest_save(metrics)
    lead = site.signal_lead or max(_SHORTEST_LEAD, min(math.ceil(_SAVES_IN_THE_LEAD * slowest), _LONGEST_LEAD))
    if lead <= slowest:
        raise UserError(f"signal_lead: {lead} is not more than the run's slowest save took, {slowest:.0f} s; give more")
    if site.seconds < lead + slowest:
        raise UserError(
            f"--time: {site.time} is less than signal_lead={lead} and a save of {slowest:.0f} s; allowed is "
            f"{math.ceil((lead + slowest) / 60)} minutes or more"
        )
    return lead


def describe(site: Profile, nodes: str, nproc: int, lead: int, chain: int) -> list[str]:
    """How much a training asks for, and what comes at its time limit: two lines."""
    hours, unit = site.seconds / 3600, "GPU" if site.gpus_per_node else "node"
    total = hours * chain * most_nodes(nodes) * (site.gpus_per_node or 1)
    then = "ends with 75; the same launch resumes it (--chain N sends N jobs)"
    if chain > 1:
        then = "the next job resumes it"
    elif site.max_requeues:
        then = f"the job goes back in the queue, at most {site.max_requeues} times without a new checkpoint"
    return [
        f"nodes: {nodes}; ranks on each: {nproc or 'one for each core'}; hours: {hours:g}; jobs: {chain}; "
        f"at most {total:,.10g} {unit} hours",
        f"{lead} s before the time limit, or at a preemption, the run saves; {then}",
    ]
