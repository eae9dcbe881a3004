"""`zeromt launch slurm` on the command line."""

from launcher.options.batch import GPUS_PER_NODE, INTERFACE, ProfileOption, add_launch_batch
from launcher.options.command import Command
from launcher.options.parser import Parser
from launcher.options.values import whole

_OPTIONS = (
    GPUS_PER_NODE,
    ProfileOption("--time", "T", "time limit of a job: D-HH:MM:SS, HH:MM:SS, MM:SS or minutes"),
    ProfileOption("--partition", "P", "partition to run the job in"),
    ProfileOption("--account", "A", "account to charge"),
    ProfileOption("--qos", "Q", "quality of service"),
    INTERFACE,
    ProfileOption("--container-image", "IMAGE", "container image to run the job in; see the field `container`"),
)


def add_launch_slurm(parser: Parser) -> None:
    """Arguments of `zeromt launch slurm`."""
    add_launch_batch(parser, options=_OPTIONS, job=whole(1, 2**31), chain=True)


COMMAND = Command(
    summary="train on a SLURM cluster: submit a batch job, or print its script",
    usage="CONFIG [--site NAME] [--nodes N] [--gpus-per-node G] [--time T] [--partition P] [--dry-run] [...] "
    "| [...] --array N -- COMMAND ...",
    add_arguments=add_launch_slurm,
    target="launcher.jobs.command:launch",
    group="clusters",
)
