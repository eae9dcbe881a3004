"""Arguments of `zeromt launch KIND` for clusters with a queue, each checked as far as that needs no configuration."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from launcher.options.parser import Parser
from launcher.options.running import add_config, add_device, add_parent
from launcher.options.values import path, processes, whole

USAGE = "CONFIG [--site NAME] [--nodes N] [--nproc N] [--prepare N] [--dry-run] [...]"


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
    """What every cluster with a queue can be asked for.

    Args:
        parser: gets the arguments.
        options: further ones, of this cluster's profile.
        job: from text to a job's name, as the cluster knows it.
        chain: whether jobs may follow one another.
    """
    add_config(parser)
    add_device(parser)
    add_site(parser)
    _add_size(parser)
    for option in options:
        shown = f"{option.meaning} (default: the profile's)"
        parser.add_argument(option.name, metavar=option.metavar, type=option.type, help=shown)
    _add_submission(parser, job)
    _add_prepare_jobs(parser, chain=chain)


def add_site(parser: Parser) -> None:
    """The profile of a cluster."""
    parser.add_argument(
        "--site", metavar="NAME", type=path, help="a YAML file, or the name of an example profile of a cluster"
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
    """How many nodes and processes."""
    parser.add_argument("--nodes", metavar="N", default="1", help="a number, or MIN-MAX for what is free (default: 1)")
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
    parser.add_argument("--after", metavar="JOB", type=job, help="start when that job has succeeded")
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="start at step 0; an existing run is renamed to NAME.replaced-DATE-TIME at once, never deleted",
    )
    add_parent(parser)
    parser.add_argument("--dry-run", action="store_true", help="print what would be submitted, and submit nothing")


def _add_prepare_jobs(parser: Parser, *, chain: bool) -> None:
    jobs = parser.add_mutually_exclusive_group()
    if chain:
        jobs.add_argument(
            "--chain",
            metavar="N",
            type=whole(1, 1000),
            default=1,
            help="N jobs, each after the one before, for sites without requeue (default: 1)",
        )
    jobs.add_argument(
        "--prepare",
        metavar="N",
        type=whole(1, 10_000),
        help="prepare the corpus instead of training: an array of N jobs, and one that merges their parts",
    )
