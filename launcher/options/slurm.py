"""Arguments of `zeromt launch slurm`."""

import argparse

from launcher.options.parser import Parser
from launcher.options.running import add_config, add_device, add_parent
from launcher.options.values import path, processes, whole


def add_launch_slurm(parser: Parser) -> None:
    """Arguments of `zeromt launch slurm`; what has no default here is left out where it is not given."""
    add_config(parser, is_optional=True)
    add_device(parser)
    parser.set_defaults(words=())  # of the command behind `--`
    parser.add_argument(
        "--site", metavar="NAME", type=path, help="profile of the cluster: a YAML file, or the name of an example"
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        dest="settings",
        action="append",
        default=[],
        help="a field of the profile, such as --set sbatch.partition=gpu; may be repeated",
    )
    parser.add_argument(
        "--time",
        metavar="T",
        help="time limit of a job: D-HH:MM:SS, HH:MM:SS, MM:SS or minutes (default: the profile's)",
    )
    parser.add_argument(
        "--gpus-per-node",
        metavar="G",
        type=whole(0, 1024),
        help="GPUs of every node; 0 trains on CPUs (default: the profile's)",
    )
    parser.add_argument(
        "--nodes",
        metavar="N",
        default=argparse.SUPPRESS,
        help="number of nodes, or MIN-MAX for as many as are free (default: 1)",
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
        default=argparse.SUPPRESS,
        help="when a process fails, start again within the job, at most R times without a new checkpoint (default: 3)",
    )
    parser.add_argument("--after", metavar="JOB", type=whole(1, 2**31), help="start only after this job has succeeded")
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="start at step 0; an existing run is renamed to NAME.replaced-DATE-TIME at once, never deleted",
    )
    add_parent(parser)
    parser.add_argument(
        "--chain",
        metavar="N",
        type=whole(1, 1000),
        default=argparse.SUPPRESS,
        help="send N jobs, each of which starts after the one before; for sites without requeue (default: 1)",
    )
    parser.add_argument(
        "--array",
        metavar="N",
        type=whole(1, 10_000),
        help="run the command behind -- in N tasks, each with --part slurm; and, once all have succeeded, with --merge",
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        help="wait, and end with the job's exit code; if this is killed, the same command waits for the job again",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be sent, but send nothing")
