"""`zeromt launch kubernetes` on the command line."""

from launcher.options import Parser, add_config, add_device
from launcher.options.batch import add_prepare_jobs, add_site, add_size, add_submission
from launcher.options.command import Command
from launcher.options.values import whole


def add_launch_kubernetes(parser: Parser) -> None:
    """Arguments of `zeromt launch kubernetes`."""
    add_config(parser)
    add_device(parser)
    add_site(parser)
    add_size(parser)
    for option, metavar, what in (
        ("--gpus-per-node", "G", "GPUs of every node; 0 trains on CPUs"),
        ("--image", "IMAGE", "container image that has zeromt"),
        ("--namespace", "NAME", "where the job is created"),
        ("--directory", "DIR", "where the job starts in its pods"),
        ("--interface", "NAME", "network interface of gloo and NCCL"),
    ):
        kind = whole(0, 1024) if option == "--gpus-per-node" else str
        parser.add_argument(option, metavar=metavar, type=kind, help=f"{what} (default: the profile's)")
    add_submission(parser)
    add_prepare_jobs(parser)


COMMAND = Command(
    summary="an Indexed Job on Kubernetes: submitted by kubectl, or its manifest shown",
    usage="CONFIG --site NAME [--nodes N] [--gpus-per-node G] [--image IMAGE] [--dry-run] [...]",
    add_arguments=add_launch_kubernetes,
    target="launcher.jobs.command:launch",
)
