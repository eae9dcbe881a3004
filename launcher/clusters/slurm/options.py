"""Arguments of `zeromt launch slurm`, each checked as far as that needs no configuration."""

from launcher.options import Parser, add_config, add_device
from launcher.options.values import path, processes, whole


def add_launch_slurm(parser: Parser) -> None:
    """Arguments of `zeromt launch slurm`."""
    add_config(parser)
    add_device(parser)
    parser.add_argument(
        "--site", metavar="NAME", type=path, help="a YAML file, or the name of a shipped profile of a cluster"
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        dest="settings",
        action="append",
        default=[],
        help="a field of the profile, such as --set memory=240G; as often as needed",
    )
    parser.add_argument("--nodes", metavar="N", default="1", help="a number, or MIN-MAX for what is free (default: 1)")
    parser.add_argument(
        "--nproc",
        metavar="N",
        type=processes,
        help="processes on each node; auto (the default) takes one for each GPU, or core where there is no GPU",
    )
    for option, metavar, what in (
        ("--gpus-per-node", "G", "GPUs of every node; 0 trains on CPUs"),
        ("--time", "T", "limit of a job: D-HH:MM:SS, HH:MM:SS, MM:SS or minutes"),
        ("--partition", "P", "where the job runs"),
        ("--account", "A", "who pays"),
        ("--qos", "Q", "quality of service"),
        ("--interface", "NAME", "network interface of gloo and NCCL"),
        ("--container-image", "IMAGE", "what the job runs in; see the profile's field `container`"),
    ):
        kind = whole(0, 1024) if option == "--gpus-per-node" else str
        parser.add_argument(option, metavar=metavar, type=kind, help=f"{what} (default: the profile's)")
    parser.add_argument("--job-name", metavar="NAME", help="in the queue (default: the run's name)")
    parser.add_argument(
        "--max-restarts",
        metavar="R",
        type=whole(0, 1_000_000),
        default=3,
        help="when a process fails, start again within the job, at most so often before another checkpoint is complete "
        "(default: 3)",
    )
    jobs = parser.add_mutually_exclusive_group()
    jobs.add_argument(
        "--chain",
        metavar="N",
        type=whole(1, 1000),
        default=1,
        help="so many jobs, each after the one before, for sites without requeue (default: 1)",
    )
    jobs.add_argument(
        "--prepare",
        metavar="N",
        type=whole(1, 10_000),
        help="prepare the corpus in place of training: an array of N jobs, and one that merges what they made",
    )
    parser.add_argument("--after", metavar="JOB", type=whole(1, 2**31), help="begin when that job has succeeded")
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="begin at step 0; a run that is there is renamed to NAME.replaced-DATE-TIME at once, never deleted",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the batch scripts, and submit nothing")
