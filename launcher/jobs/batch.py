"""Clusters with a queue: jobs are checked, rendered, and shown or submitted."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from configs import RunConfig, UserError, load_run
from configs.plugins import keep_copies, pins_of, variables
from configs.process.files import is_dir
from configs.process.files.inside import write_text
from configs.process.streams import note
from configs.reading.passwords import without_passwords
from configs.zero_keys import check_ranks
from launcher.agents.run_folder import make_ready
from launcher.dispatch import resolve
from launcher.jobs.cluster import Cluster
from launcher.jobs.job import Array, Job, Place, Training, most_nodes
from launcher.jobs.record import without_values, write_submitted
from launcher.machine.supervise import Supervisor
from launcher.options.batch import USAGE, add_launch_batch
from launcher.options.command import InParts
from launcher.options.parser import Parser
from trainer.runs.layout import LOGS, METRICS_FILE
from trainer.runs.metrics_file import read_saves
from trainer.runs.parents import check_parent


@dataclass(kw_only=True, slots=True, frozen=True)
class LaunchOptions:
    """The options of `zeromt launch KIND`."""

    config: str
    """A YAML file, or the name of a shipped run."""
    overrides: Sequence[str]
    nodes: str
    """A number, or MIN-MAX."""
    nproc: int | None
    """Processes on each node; None: the cluster's default."""
    job_name: str | None
    """The job's name in the queue; None: the run's."""
    max_restarts: int
    """Restarts of the ranks within a job."""
    array: InParts | None
    """A command to run in parts; None for training."""
    after: object | None
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


@dataclasses.dataclass(kw_only=True, frozen=True)
class BatchCluster(Cluster):
    """A cluster with a queue. A subclass implements `render` and `submit`, and further methods that it supports."""

    usage: ClassVar[str] = USAGE
    shares_files: ClassVar[bool] = True
    """Whether this machine sees the run's folder and the prepared data. Else the job alone looks for them, and gets
    `--fresh`."""
    suffix: ClassVar[str] = ".sh"
    """Suffix of the file, next to the job's output, that keeps what was submitted."""

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        """Options of every cluster with a queue."""
        add_launch_batch(parser)

    def processes(self) -> int:
        """Default number of processes on each node; 0 leaves it to the node."""
        return 0

    def render(self, job: Job) -> str:
        """The batch script or manifest to submit. A pure function of the profile and the job.

        Args:
            job: a `Training` or an `Array`.

        Returns:
            Empty for a merge that is submitted with its parts.

        Raises:
            UserError: a value that must not be in it; the message names the field.
        """
        raise NotImplementedError

    def check(self, text: str) -> None:
        """Ask the cluster whether it would accept a job, before a folder is made or renamed.

        Raises:
            UserError: it would not.
        """

    def submit(self, text: str, *, after: str | None, needs_success: bool) -> str:
        """Submit a job.

        Args:
            text: from `render`.
            after: the earlier job that it follows; None for the first.
            needs_success: whether that job must succeed.

        Returns:
            Its name.

        Raises:
            UserError: the cluster refuses.
        """
        raise NotImplementedError

    def how_to_follow(self, jobs: list[str], run: str, logs: Path, *, array: str | None) -> list[str]:
        """Lines for the user about submitted jobs.

        Args:
            jobs: their names.
            run: its folder, as the user named it.
            logs: its folder of logs.
            array: name of the command that they are an array of; None for training.
        """
        if array is not None:
            return [
                f"submitted job {', '.join(jobs)}",
                f"launch after them: zeromt launch {self.kind} ... --after {jobs[-1]}",
            ]
        return [
            f"submitted job {', '.join(jobs)}",
            f"follow it:  zeromt status {run};  zeromt log {run} --follow",
            f"save and end it:  zeromt stop {run}",
        ]

    def in_short(self, jobs: Sequence[Job]) -> list[str]:
        """Lines for the user about jobs that are not submitted: how much they ask for, and what ends them."""
        return []

    def launch(self, supervisor: Supervisor | None, **arguments: Any) -> int:
        """Submit the jobs of a training, or of an array, or print what would be submitted."""
        return submit_jobs(self, LaunchOptions(**arguments))


def submit_jobs(cluster: BatchCluster, options: LaunchOptions) -> int:
    """Submit the jobs of a training, or of an array, or print what would be submitted.

    What is printed and kept has `***` for passwords in URLs and for values of the site's `environment`, except for
    settings of libraries such as NCCL_IB_HCA.

    Returns:
        0, with the jobs' names on stdout, one a line.

    Raises:
        UserError: a value is wrong, or the cluster refuses.
    """
    place, run = _place_and_run(options)
    if run is not None:
        if options.after is None and cluster.shares_files:
            _check_datasets(run, options)
            if not options.dry_run:
                check_parent(Path(run.folder), options.parent, fresh=options.fresh)
        check_size(run, options.nodes, options.nproc or cluster.processes())
    jobs = list(jobs_of(cluster, options, place))
    texts = [text for job in jobs if (text := cluster.render(job))]
    shown = [without_passwords(text) for job in jobs if (text := without_values(cluster).render(job))]
    if options.dry_run:
        print("\n".join(shown), end="", flush=True)
        for line in cluster.in_short(jobs):
            note(line)
        return 0
    cluster.check(texts[0])
    logs = _make_folder(cluster, place, fresh=options.fresh)
    names: list[str] = []
    for text, kept in zip(texts, shown, strict=True):
        after = names[-1] if names else None
        names.append(cluster.submit(text, after=after, needs_success=options.array is not None))
        name = names[-1].replace("/", "-")
        write_text(logs / f"{cluster.kind}-{name}{cluster.suffix}", kept)
        print(names[-1], flush=True)
        write_submitted(Path(place.folder), cluster, names, is_array=options.array is not None)
    for line in cluster.how_to_follow(names, place.folder, logs, array=options.array and options.array.words[0]):
        note(line)
    return 0


def _check_datasets(run: RunConfig, options: LaunchOptions) -> None:
    """Check that the data are prepared; in a dry run only print which are missing.

    Raises:
        UserError: they are not, and it is not a dry run.
    """
    if not options.dry_run:
        resolve("launcher.agents.datasets:check_datasets")(
            run, options.config, options.overrides, options.plugins, parent=options.parent
        )
    for source in run.datasets if options.dry_run else ():
        if "://" not in source.path and not is_dir(source.path):
            note(f"{source.path} is not there: the data have to be prepared before this can be submitted")


def _place_and_run(options: LaunchOptions) -> tuple[Place, RunConfig | None]:
    """Where the jobs belong; and the run's configuration, if it is trained."""
    if options.array is not None:
        return Place.of(options.array, options.config, options.overrides, options.plugins), None
    run = load_run(options.config, options.overrides, plugins=options.plugins)
    return Place(run.folder, run.name, run.plugins), run


def jobs_of(cluster: BatchCluster, options: LaunchOptions, place: Place) -> Iterator[Job]:
    """The jobs that the options ask for, in sequence."""
    pins = pins_of(place.plugins, Path(place.folder), with_content=not cluster.shares_files)
    common: dict[str, Any] = {
        "folder": str(Path.cwd()),
        "run": place.folder,
        "logs": str(Path(place.folder).absolute() / LOGS),
        "name": options.job_name or place.name,
        "after": None if options.after is None else str(options.after),
        "variables": variables(options.config, pins),
    }
    if options.array is not None:
        for is_merge in (False, True):
            yield Array(**common, words=tuple(options.array.words), parts=options.array.number, is_merge=is_merge)
        return
    training = Training(
        **common,
        config=options.config,
        overrides=tuple(options.overrides),
        nodes=options.nodes,
        nproc=options.nproc or cluster.processes() or None,
        max_restarts=options.max_restarts,
        fresh=options.fresh and not cluster.shares_files,
        parent=options.parent,
        slowest_save=slowest_save(Path(place.folder) / METRICS_FILE),
        num_links=options.chain,
    )
    for number in range(options.chain):
        yield dataclasses.replace(training, link=number + 1)


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
            f"{max(nproc, 1)} --write FILE` makes of the configuration"
        )
    if nproc:
        check_ranks(run.engine.zero_optimization, ranks=most * nproc, on_each=nproc)


def slowest_save(metrics: Path) -> float:
    """Seconds of the slowest save in a run's metrics.jsonl; 0 if there is none."""
    try:
        return max((save.seconds for save in read_saves(metrics)), default=0.0)
    except OSError:
        return 0.0


def _make_folder(cluster: BatchCluster, place: Place, *, fresh: bool) -> Path:
    """The folder of logs in the run's folder, created if necessary."""
    if cluster.shares_files:
        make_ready(place.folder, fresh=fresh)
    logs = Path(place.folder).absolute() / LOGS
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"output: {str(logs)!r} cannot be made: {error.strerror}; choose a folder that can be written"
        ) from error
    keep_copies(Path(place.folder), place.plugins)
    return logs
