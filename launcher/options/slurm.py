"""Arguments of `zeromt launch slurm`."""

from launcher.options.parser import Parser
from launcher.options.running import add_array, add_config, add_device, add_parent
from launcher.options.values import path, processes, whole


def add_launch_slurm(parser: Parser) -> None:
    """Arguments of `zeromt launch slurm`. One with the name of a field of the profile replaces that."""
    add_config(parser)
    add_device(parser)
    _add_profile(parser)
    parser.add_argument(
        "--nodes", metavar="N", default="1", help="number of nodes, or MIN-MAX for as many as are free (default: 1)"
    )
    parser.add_argument(
        "--nproc",
        metavar="N",
        type=processes,
        help="processes on each node; auto (the default) takes one per GPU, or per core without a GPU",
    )
    parser.add_argument("--job-name", metavar="NAME", help="the job's name in the queue (default: the run's name)")
    parser.add_argument(
        "--max-restarts",
        metavar="R",
        type=whole(0, 1_000_000),
        default=3,
        help="when a process fails, restart within the job, at most R times without a new checkpoint (default: 3)",
    )
    parser.add_argument("--after", metavar="JOB", type=whole(1, 2**31), help="start only after this job has succeeded")
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="start at step 0; an existing run is renamed to NAME.replaced-DATE-TIME at once, never deleted",
    )
    add_parent(parser)
    parser.add_argument("--dry-run", action="store_true", help="print what would be submitted, but submit nothing")
    jobs = parser.add_mutually_exclusive_group()
    parser.add_argument(
        "--chain",
        group=jobs,
        metavar="N",
        type=whole(1, 1000),
        default=1,
        help="submit N jobs, each of which starts after the one before; for sites without requeue (default: 1)",
    )
    add_array(parser, jobs)


def _add_profile(parser: Parser) -> None:
    """The profile of a site, and its commonest fields."""
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
    parser.add_argument(
        "--gpus-per-node",
        metavar="G",
        type=whole(0, 1024),
        help="GPUs of every node; 0 trains on CPUs (default: the profile's)",
    )
    for option, metavar, meaning in (
        ("--time", "T", "time limit of a job: D-HH:MM:SS, HH:MM:SS, MM:SS or minutes"),
        ("--partition", "P", "partition to run the job in"),
        ("--account", "A", "account to charge"),
        ("--qos", "Q", "quality of service"),
        ("--interface", "NAME", "network interface of gloo and NCCL"),
        ("--container-image", "IMAGE", "container image to run the job in; see the field `container`"),
    ):
        parser.add_argument(option, metavar=metavar, help=f"{meaning} (default: the profile's)")
