"""`zeromt launch slurm`: jobs are checked, rendered, and shown or submitted."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs import RunConfig, UserError, load_run
from configs.plugins import keep_copies, pins_of, variables
from configs.process.files import is_dir
from configs.process.files.inside import write_text
from configs.process.streams import note
from configs.reading.passwords import without_passwords
from configs.zero_keys import check_ranks
from launcher.dispatch import resolve
from launcher.options.command import InParts
from launcher.slurm.jobs import Array, Training
from launcher.slurm.profile import Profile, load_profile, parse_time
from launcher.slurm.queue import choose_lead, sbatch
from launcher.slurm.record import write_submitted
from launcher.slurm.script import most_nodes, render_array, render_training
from launcher.start.run_folder import Place, make_ready
from trainer.runs.layout import LOGS, METRICS_FILE
from trainer.runs.metrics_file import read_saves
from trainer.runs.parents import check_beginning


@dataclass(kw_only=True, slots=True, frozen=True)
class LaunchOptions:
    """The options of `zeromt launch slurm` that are no fields of the profile."""

    config: str
    """A YAML file, or the name of a shipped run."""
    overrides: Sequence[str]
    nodes: str
    """A number, or MIN-MAX."""
    nproc: int | None
    """Processes on each node; None: one for each GPU, or the node's own choice."""
    job_name: str | None
    """The job's name in the queue; None: the run's."""
    max_restarts: int
    """Restarts of the ranks within a job."""
    array: InParts | None
    """A command to run in parts; None for training."""
    after: int | None
    """A job that must have succeeded."""
    fresh: bool
    """Start at step 0, and rename an existing run."""
    dry_run: bool
    """Print only."""
    parent: str | None = None
    """RUN[@step] with the initial weights of a run without a checkpoint."""
    plugins: Sequence[str] = ()
    """Files with components, in addition to those that the configuration names; the jobs read copies."""
    chain: int = 1
    """Number of jobs, each starting after the one before."""


def launch(**arguments: Any) -> int:
    """Submit the jobs of a training, or of an array, or print what would be submitted.

    What is printed and kept has `***` for passwords in URLs and for values of the site's `environment`, except for
    settings of libraries such as NCCL_IB_HCA.

    Returns:
        0, with the jobs' numbers on stdout, one a line.

    Raises:
        UserError: a value is wrong, or SLURM refuses.
    """
    profile, others = profile_of(**arguments)
    options = LaunchOptions(**others)
    if not (options.array or profile.cpus_per_node or profile.exclusive) and profile.gpus_per_node:
        note(
            f"warning: cpus_per_node: none with {profile.gpus_per_node} GPUs on each node, and SLURM then gives one "
            f"core unless the site says otherwise; give it, such as --set cpus_per_node={8 * profile.gpus_per_node}"
        )
    if options.array is not None:
        return _submit_array(profile, options, options.array)
    return _submit_training(profile, options)


def profile_of(*, site: str | None, settings: Sequence[str], **arguments: Any) -> tuple[Profile, dict[str, Any]]:
    """The profile that the arguments of `launch` describe, and those of them that are none of its fields."""
    own = {field.name for field in dataclasses.fields(Profile)}
    changes = {name: value for name, value in arguments.items() if name in own and value is not None}
    return load_profile(site, settings, changes), {k: v for k, v in arguments.items() if k not in own}


def _submit_training(profile: Profile, options: LaunchOptions) -> int:
    run = load_run(options.config, options.overrides, plugins=options.plugins)
    if options.after is None:
        _check_datasets(run, options)
        if not options.dry_run:
            check_beginning(Path(run.folder), options.parent, fresh=options.fresh)
    nproc = options.nproc or profile.gpus_per_node
    check_size(run, options.nodes, nproc)
    place = Place(run.folder, run.name, run.plugins)
    first = Training(
        **_common(place, options),
        run=run.folder,
        config=options.config,
        overrides=tuple(options.overrides),
        nodes=options.nodes,
        nproc=nproc or None,
        max_restarts=options.max_restarts,
        parent=options.parent,
        num_links=options.chain,
    )
    lead = choose_lead(profile, slowest_save(Path(run.folder) / METRICS_FILE))

    def render(site: Profile) -> list[str]:
        output = f"{_logs(place)}/slurm-%j.out"
        links = (dataclasses.replace(first, link=number + 1) for number in range(options.chain))
        return [render_training(site, job, output=output, lead=lead) for job in links]

    texts, shown = render(profile), _shown(render(profile.without_values()))
    if options.dry_run:
        return _print(shown, _training_in_short(profile, first, lead))
    jobs = _submit(place, texts, shown, options)
    note(f"submitted job {', '.join(jobs)}")
    note(
        f"follow it:  squeue -j {','.join(jobs)};  tail -F {_logs(place)}/slurm-{jobs[0]}.out;  "
        f"zeromt status {place.folder}"
    )
    note(f"save and end it:  zeromt stop {place.folder}")
    return 0


def _submit_array(profile: Profile, options: LaunchOptions, array: InParts) -> int:
    place = Place.of(array, options.config, options.overrides, options.plugins)
    parts = Array(**_common(place, options), words=tuple(array.words), parts=array.number)
    name = array.words[0]

    def render(site: Profile) -> list[str]:
        merge = dataclasses.replace(parts, is_merge=True)
        return [
            render_array(site, job, output=f"{_logs(place)}/{name}-{pattern}.out")
            for job, pattern in ((parts, "%A_%a"), (merge, "%j"))
        ]

    texts, shown = render(profile), _shown(render(profile.without_values()))
    if options.dry_run:
        hours = parse_time(profile.time) / 3600
        node_hours = _count(hours * (array.number + 1), "node hour")
        limit = f"each on a node for at most {_count(hours, 'hour')}"
        lines = [
            f"{_count(array.number, 'task')} and their merge, {limit}: {node_hours}",
            "at its time limit SLURM kills a task; the same launch again goes on with what is not done",
        ]
        return _print(shown, lines)
    jobs = _submit(place, texts, shown, options)
    note(f"submitted job {jobs[0]} (the parts) and {jobs[1]} (their merge)")
    note(f"follow them:  squeue -j {','.join(jobs)};  tail -F {_logs(place)}/{name}-*.out")
    note(f"launch after them:  zeromt launch slurm ... --after {jobs[1]}")
    return 0


def _common(place: Place, options: LaunchOptions) -> dict[str, Any]:
    """The fields of every job."""
    return {
        "folder": str(Path.cwd()),
        "name": options.job_name or place.name,
        "after": options.after,
        "variables": variables(options.config, pins_of(place.plugins, Path(place.folder))),
    }


def _logs(place: Place) -> Path:
    return Path(place.folder).absolute() / LOGS


def _shown(texts: Sequence[str]) -> list[str]:
    return [without_passwords(text) for text in texts]


def _print(shown: Sequence[str], lines: Sequence[str]) -> int:
    """What `--dry-run` prints."""
    print("\n".join(shown), end="", flush=True)
    for line in lines:
        note(line)
    return 0


def _submit(place: Place, texts: Sequence[str], shown: Sequence[str], options: LaunchOptions) -> list[str]:
    """Submit scripts, each to start after the one before; returns the jobs' numbers."""
    sbatch(texts[0], "--test-only")  # before a folder is made or renamed
    is_array = options.array is not None
    make_ready(place.folder, fresh=options.fresh)
    logs = _logs(place)
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"output: {str(logs)!r} cannot be made: {error.strerror}; choose a folder that can be written"
        ) from error
    keep_copies(Path(place.folder), place.plugins)
    jobs: list[str] = []
    for text, kept in zip(texts, shown, strict=True):
        follows = []
        if jobs and is_array:
            follows = [f"--dependency=afterok:{jobs[-1]}", "--kill-on-invalid-dep=yes"]
        elif jobs:
            follows = [f"--dependency=afterany:{jobs[-1]}"]
        jobs.append(sbatch(text, "--parsable", *follows))
        write_text(logs / f"slurm-{jobs[-1]}.sh", kept)
        print(jobs[-1], flush=True)
        write_submitted(Path(place.folder), jobs, is_array=is_array)
    return jobs


def _check_datasets(run: RunConfig, options: LaunchOptions) -> None:
    """Check that the data are prepared; in a dry run only print which are missing.

    Raises:
        UserError: they are not, and it is not a dry run.
    """
    if not options.dry_run:
        resolve("launcher.start.datasets:check_datasets")(
            run, options.config, options.overrides, options.plugins, parent=options.parent
        )
    for source in run.datasets if options.dry_run else ():
        if "://" not in source.path and not is_dir(source.path):
            note(f"{source.path} is not there: the data have to be prepared before this can be submitted")


def check_size(run: RunConfig, nodes: str, nproc: int) -> None:
    """Refuse more ranks than the stream has lanes, or a number that DeepSpeed cannot group as configured.

    Args:
        run: to be submitted.
        nodes: a number, or MIN-MAX.
        nproc: ranks on each; 0 if only the nodes know.

    Raises:
        UserError: it is such a number.
    """
    lanes, most = run.stream.micro_batches, most_nodes(nodes)
    if most * max(nproc, 1) > lanes:
        raise UserError(
            f"--nodes: {most} with {max(nproc, 1)} processes each is more than stream.micro_batches={lanes}; "
            f"allowed are {lanes} processes together, or what `zeromt plan CONFIG --nodes {most} --gpus-per-node "
            f"{max(nproc, 1)}` says to change"
        )
    if nproc:
        check_ranks(run.engine.zero_optimization, ranks=most * nproc, on_each=nproc)


def slowest_save(metrics: Path) -> float:
    """Seconds of the slowest save in a run's metrics.jsonl; 0 if there is none."""
    try:
        return max((save.seconds for save in read_saves(metrics)), default=0.0)
    except OSError:
        return 0.0


def _training_in_short(profile: Profile, job: Training, lead: int) -> list[str]:
    """How much a training asks for, and what comes at its time limit."""
    hours, nodes = parse_time(profile.time) / 3600, most_nodes(job.nodes)
    ranks = _count(nodes * job.nproc, "rank") if job.nproc else "a rank for each core"
    where = f"{'at most ' if '-' in job.nodes else ''}{_count(nodes, 'node')}"
    amount = hours * nodes * (profile.gpus_per_node or 1) * job.num_links
    in_all = _count(amount, "GPU hour" if profile.gpus_per_node else "node hour")
    jobs_of = f"{job.num_links} jobs, one after the other, each of " if job.num_links > 1 else ""
    if job.num_links > 1:
        then = f"the next of the {job.num_links} jobs goes on from it"
    elif not profile.requeue:
        then = "the same launch again goes on from it (--chain N submits N jobs at once)"
    else:
        times = f"at most {profile.max_requeues} times without a new checkpoint"
        then = f"the job requeues itself and goes on from it, {times}"
    return [
        f"{jobs_of}{ranks} on {where} for at most {_count(hours, 'hour')}: {in_all}",
        f"{lead} s before the time limit, or at a preemption, SLURM sends SIGUSR1: the run saves a checkpoint and "
        f"ends with 75; {then}",
    ]


def _count(number: float, what: str) -> str:
    return f"{number:,.10g} {what}{'' if number == 1 else 's'}"
