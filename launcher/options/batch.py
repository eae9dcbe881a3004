"""Arguments of `zeromt launch KIND` for clusters that queue jobs."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from launcher.options.parser import Parser
from launcher.options.running import add_array, add_config, add_device, add_parent
from launcher.options.values import path, processes, whole

USAGE = "CONFIG [--site NAME] [--nodes N] [--nproc N] [--dry-run] [...] | [...] --array N -- COMMAND ..."


class ProfileOption(NamedTuple):
    """An option that replaces a field of the cluster's profile."""

    name: str
    metavar: str
    meaning: str
    type: Callable[[str], object] = str


GPUS_PER_NODE = ProfileOption("--gpus-per-node", "G", "GPUs of every node; 0 trains on CPUs", whole(0, 1024))
INTERFACE = ProfileOption("--interface", "NAME", "network interface of gloo and NCCL")


def add_launch_batch(
    parser: Parser,
    *,
    options: Sequence[ProfileOption] = (),
    job: Callable[[str], object] = str,
    chain: bool = False,
) -> None:
    """The arguments that all clusters with a queue have.

    Args:
        parser: the arguments are added to it.
        options: further options, which replace fields of this cluster's profile.
        job: parses the name or number that the cluster gives a job.
        chain: whether the cluster supports `--chain`.
    """
    add_config(parser)
    add_device(parser)
    add_site(parser)
    _add_size(parser)
    for option in options:
        shown = f"{option.meaning} (default: the profile's)"
        parser.add_argument(option.name, metavar=option.metavar, type=option.type, help=shown)
    _add_submission(parser, job)
    jobs = parser.add_mutually_exclusive_group()
    if chain:
        jobs.add_argument(
            "--chain",
            metavar="N",
            type=whole(1, 1000),
            default=1,
            help="submit N jobs, each of which starts after the one before; for sites without requeue (default: 1)",
        )
    add_array(jobs)


def add_site(parser: Parser) -> None:
    """`--site` and `--set`: the profile of a site and its fields."""
    parser.add_argument(
        "--site", metavar="NAME", type=path, help="profile of the cluster: a YAML file, or the name of an example"
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        dest="settings",
        action="append",
        default=[],
        help="a field of the profile, such as --set memory=240G; may be repeated",
    )


def _add_size(parser: Parser) -> None:
    """`--nodes` and `--nproc`."""
    parser.add_argument(
        "--nodes", metavar="N", default="1", help="number of nodes, or MIN-MAX for as many as are free (default: 1)"
    )
    parser.add_argument(
        "--nproc",
        metavar="N",
        type=processes,
        help="processes on each node; auto (the default) takes one per GPU, or per core without a GPU",
    )


def _add_submission(parser: Parser, job: Callable[[str], object]) -> None:
    parser.add_argument("--job-name", metavar="NAME", help="the job's name in the queue (default: the run's name)")
    parser.add_argument(
        "--max-restarts",
        metavar="R",
        type=whole(0, 1_000_000),
        default=3,
        help="when a process fails, restart within the job, at most R times without a new checkpoint (default: 3)",
    )
    parser.add_argument("--after", metavar="JOB", type=job, help="start only after this job has succeeded")
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="start at step 0; an existing run is renamed to NAME.replaced-DATE-TIME at once, never deleted",
    )
    add_parent(parser)
    parser.add_argument("--dry-run", action="store_true", help="print what would be submitted, but submit nothing")
