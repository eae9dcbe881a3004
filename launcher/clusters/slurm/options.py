"""`zeromt launch slurm` on the command line."""

from launcher.options import Parser, add_config, add_device
from launcher.options.batch import add_prepare_jobs, add_site, add_size, add_submission
from launcher.options.command import Command
from launcher.options.values import whole


def add_launch_slurm(parser: Parser) -> None:
    """Arguments of `zeromt launch slurm`."""
    add_config(parser)
    add_device(parser)
    add_site(parser)
    add_size(parser)
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
    add_submission(parser, job=whole(1, 2**31))
    add_prepare_jobs(parser, chain=True)


COMMAND = Command(
    summary="a batch job on a cluster: submitted, or its script shown",
    usage="CONFIG [--site NAME] [--nodes N] [--gpus-per-node G] [--time T] [--partition P] [--dry-run] [...]",
    add_arguments=add_launch_slurm,
    target="launcher.jobs.command:launch",
)
