"""A training run under a storm of faults, and whether any of them changed what it learnt.

For so many minutes, a run on the bundled corpus is started over and over, with other ranks and ZeRO stages, and
disturbed at random moments: ranks, agent, launcher or all killed; asked to stop; its disk full; its checkpoints
damaged. Then it is left to finish, and compared: the pairs of every update with those of a run that nothing disturbed,
the figures of every start of the ranks with those of an undisturbed reference from the same checkpoint. Exit code 0
where all of it holds, and no process and no temporary file is left; 1 otherwise. benchmarks/README.md says more.
"""

import collections
import json
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.common import measure
from benchmarks.common.results import Row, record
from tests.verification.chaos import damage, verdict
from tests.verification.chaos.job import NUM_PAIRS, Job, prepare
from tests.verification.chaos.storm import FAULTS, Event, Storm
from tests.verification.chaos.verdict import Chain, Findings, Reference
from tests.verification.chaos.watch import Watch


def main() -> int:
    """Let the storm pass and judge what is left; the exit code."""
    parser = measure.parser(__doc__)
    parser.add_argument("--minutes", type=float, default=15.0, help="of faults; finishing and references come on top")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without", nargs="+", choices=sorted(FAULTS), default=[], help="kinds of faults to leave out")
    parser.add_argument("--keep", action="store_true", help="keep the runs, which need some gigabytes")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"machine": measure.machine(), "minutes": arguments.minutes, "seed": arguments.seed}
    measure.print_machine(figures["machine"])
    faults = {name: number for name, number in FAULTS.items() if name not in arguments.without}
    work = Path(tempfile.mkdtemp(dir=arguments.work, prefix="chaos-"))
    print(f"seed {arguments.seed}, {arguments.minutes:g} minutes, in {work}", flush=True)
    try:
        figures |= weather(prepare(work), arguments.minutes, arguments.seed, faults)
    finally:
        if not arguments.keep:
            shutil.rmtree(work)
    record(arguments, "storms", [row_of(figures)], figures, settings={"minutes": arguments.minutes})
    return 0 if figures["verdict"] else 1


def row_of(figures: dict[str, Any]) -> Row:
    """The row of a result."""
    faults = collections.Counter(figures["faults"])
    changes = f"{figures['compared_elsewhere']}: {figures['largest_difference_elsewhere']:.1e}"
    damage = sum(number for name, number in faults.items() if "damage" in name and "pointer" not in name)
    compared = f"{figures['updates_compared']:,}, {figures['checkpoints_compared']}"
    return {
        "part": "storms",
        "seed": figures["seed"],
        "launches_and_starts": f"{figures['launches']}, {figures['starts']}",
        "sigkill_rank_agent_launcher_all": ", ".join(
            str(faults[f"kill {what}"]) for what in ("rank", "agent", "launcher", "all")
        ),
        "requests_to_stop": faults["SIGTERM"] + faults["SIGUSR1"] + faults["STOP"],
        "full_disks": faults["disk full"],
        "damage_to_checkpoints_and_pointer": f"{damage}, {faults['pointer damaged']}",
        "updates_trained_redone": f"{figures['trained_updates']:,} ({figures['redone_updates']:,})",
        "bit_equal_updates_and_checkpoints": compared,
        "changes_of_layout_and_largest_difference": changes,
        "verdict": "nothing was lost" if figures["verdict"] else f"{len(figures['violations'])} violations",
    }


def weather(job: Job, minutes: float, seed: int, faults: dict[str, int]) -> dict[str, Any]:
    """The storm, the calm after it, and the comparison."""
    begin = time.monotonic()
    watch = Watch(job.folder, job.work / "aside")
    storm = Storm(job, watch, seed=seed, faults=faults, say=_print_event)
    storm.rage(minutes)
    watch.settle()
    max_updates = max((s.last for s in watch.segments), default=0) + 2 * verdict.NUM_ELSEWHERE
    print(f"calm: the run goes on to step {max_updates}", flush=True)
    storm.finish(max_updates)
    watch.finish()
    calm = time.monotonic()
    chains = verdict.chains_of(watch.segments, watch.versions, max_updates=max_updates)
    violations = [*storm.violations, *watch.problems]
    findings = judge(job, chains)
    try:
        violations += verdict.steps_problem(job.folder, max_updates)
        undisturbed = job.named("reference-0").folder
        problems, epochs = verdict.compare_pairs(job.folder, undisturbed, watch.segments, NUM_PAIRS)
        violations += problems
    except OSError as error:
        violations.append(f"the runs cannot be compared: {error}")
        epochs = 0
    left = damage.leftovers(job.folder) + [str(p) for p in (job.work / "tmp").iterdir()]
    violations += [*findings.violations, *(f"left behind: {path}" for path in left)]
    figures = {
        "launches": storm.num_launches,
        "starts": len(watch.segments),
        "faults": dict(collections.Counter(e.fault for e in storm.events)),
        "max_updates": max_updates,
        "epochs": epochs,
        "trained_updates": sum(len(s.figures) for s in watch.segments),
        "redone_updates": sum(len(s.figures) for s in watch.segments) - max_updates,
        "committed_checkpoints": len(watch.versions),
        "failed_saves": watch.num_failed_saves,
        "layouts": dict(collections.Counter(str(s.layout) for s in watch.segments)),
        "chains": len(chains),
        "updates_compared": findings.num_updates,
        "checkpoints_compared": findings.num_checkpoints,
        "compared_elsewhere": findings.num_elsewhere,
        "largest_difference_elsewhere": findings.largest_difference,
        "storm_seconds": calm - begin,
        "references_seconds": time.monotonic() - calm,
        "events": [asdict(e) for e in storm.events],
        "segments": [
            {"launch": s.launch, "layout": str(s.layout), "start": s.start, "last": s.last} for s in watch.segments
        ],
        "ledger": _ledger(job.folder),
        "violations": violations,
        "verdict": not violations,
    }
    _print(figures)
    return figures


def judge(job: Job, chains: list[Chain]) -> Findings:
    """Make every chain's reference, as many at a time as there are cores for their ranks, and compare."""
    findings = Findings()
    references: dict[int, Reference] = {}

    def make(number: int) -> None:
        chain = chains[number]
        try:
            references[id(chain)] = verdict.make_reference(job, chain, number)
        except RuntimeError as error:
            findings.violations.append(str(error))
        what = f"{chain.layout}, steps {chain.start} to {chain.last}"
        print(f"reference {number + 1} of {len(chains)}: {what}", flush=True)

    cores = len(os.sched_getaffinity(0))
    for num_ranks in sorted({c.layout.num_ranks for c in chains}):
        numbers = [n for n, c in enumerate(chains) if c.layout.num_ranks == num_ranks]
        with ThreadPoolExecutor(max(1, cores // num_ranks)) as pool:
            list(pool.map(make, numbers))
    for chain in chains:
        if id(chain) in references:
            of_parent = references.get(id(chain.parent)) if chain.parent is not None else None
            verdict.compare(chain, references[id(chain)], of_parent, findings)
    return findings


def _ledger(run: Path) -> Any:
    """Where the run's seconds went, by its own account."""
    try:
        return json.loads((run / "ledger.json").read_text())
    except (OSError, ValueError):
        return None


def _print_event(event: Event) -> None:
    where = f"{event.minutes:5.1f}  launch {event.launch:3d}  {event.layout:16s}"
    print(f"{where}  {event.fault:22s}  {event.moment:22s}  {event.outcome}", flush=True)


def _print(figures: dict[str, Any]) -> None:
    rows = [{"fault": name, "times": str(number)} for name, number in sorted(figures["faults"].items())]
    measure.print_table("Faults", rows or [{"fault": "none", "times": "0"}])
    rows = [{"layout": name, "starts": str(number)} for name, number in sorted(figures["layouts"].items())]
    measure.print_table("Layouts", rows or [{"layout": "none", "starts": "0"}])
    names: tuple[str, ...] = (
        "launches",
        "starts",
        "max_updates",
        "epochs",
        "trained_updates",
        "redone_updates",
        "committed_checkpoints",
    )
    names += ("failed_saves", "chains", "updates_compared", "checkpoints_compared", "compared_elsewhere")
    rows = [{"figure": name.replace("_", " "), "value": f"{figures[name]:,}"} for name in names]
    rows.append(
        {"figure": "largest relative difference elsewhere", "value": f"{figures['largest_difference_elsewhere']:.1e}"}
    )
    for name in ("storm_seconds", "references_seconds"):
        rows.append({"figure": name.replace("_", " "), "value": f"{figures[name]:,.0f}"})
    measure.print_table("What happened", rows)
    for violation in figures["violations"]:
        print(f"VIOLATION: {violation}")
    outcome = "holds: nothing was lost" if figures["verdict"] else f"{len(figures['violations'])} violations"
    print(f"\nverdict: {outcome}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
