"""`zeromt launch kubernetes` on the command line."""

from launcher.options.batch import GPUS_PER_NODE, INTERFACE, ProfileOption, add_launch_batch
from launcher.options.command import Command
from launcher.options.parser import Parser

_OPTIONS = (
    GPUS_PER_NODE,
    ProfileOption("--image", "IMAGE", "container image with zeromt"),
    ProfileOption("--namespace", "NAME", "namespace to create the job in"),
    ProfileOption("--directory", "DIR", "working directory of the job in its pods"),
    INTERFACE,
)


def add_launch_kubernetes(parser: Parser) -> None:
    """Arguments of `zeromt launch kubernetes`."""
    add_launch_batch(parser, options=_OPTIONS)


COMMAND = Command(
    summary="train on Kubernetes: submit an Indexed Job by kubectl, or print its manifest",
    usage="CONFIG --site NAME [--nodes N] [--gpus-per-node G] [--image IMAGE] [--dry-run] [...] "
    "| [...] --array N -- COMMAND ...",
    add_arguments=add_launch_kubernetes,
    target="launcher.jobs.command:launch",
    group="clusters",
)
