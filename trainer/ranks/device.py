"""The device that a rank computes on, and what follows from its kind.

The one place that chooses. What computes otherwise on one kind than on another is in `model.kernels` and
`trainer.engines`; all else asks here, and never what a device is.
"""

import contextlib
import functools
import json
import logging
import os
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta

import torch
from torch.distributed import Store  # type: ignore[attr-defined]

from configs import UserError
from trainer.runs.process.gpus import no_gpu, num_gpus, refuse_missing, unusable, why_unusable

MOST_HOSTS = 4
"""Of the hosts in a message; the others are counted."""

READ_TIME = timedelta(seconds=20)
"""What rank 0 leaves the others to read why they are refused."""

log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True, frozen=True)
class Found:
    """What a rank computes on."""

    host: str
    kind: str
    """As torch names it."""
    cuda: str | None = None
    """The version that torch was built for; None on a CPU."""
    card: str | None = None
    gigabytes: int | None = None
    """Of the card's memory, rounded."""


def settle_device(asked: str) -> None:
    """See that this process computes on what `engine.device` asks for, before anything asks CUDA for its GPUs.

    Raises:
        UserError: there are GPUs that torch cannot use, or none where one is asked for, or not those that are named.
    """
    if asked == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    elif not torch.cuda.is_available():
        refuse_missing(os.environ)
        if present := num_gpus(os.environ):
            raise unusable(present, why_unusable() or _torchs_reason())
        if asked == "cuda":
            raise no_gpu()


@functools.cache
def warn_of_unusable_gpus() -> None:
    """Say that the CPU computes although there are GPUs, where that is so."""
    if not torch.cuda.is_available() and (present := num_gpus(os.environ)):
        log.warning("%s", str(unusable(present, why_unusable() or _torchs_reason())).removeprefix("engine.device: "))


def _torchs_reason() -> str:
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return f"torch {torch.__version__} says: {' '.join(str(error).split()).rstrip('.')}"
    return f"torch {torch.__version__} cannot use them"


def describe(device: torch.device) -> Found:
    """What a rank's device is, for the others."""
    host = socket.gethostname()
    if is_host(device):
        return Found(host=host, kind=device.type)
    found = torch.cuda.get_device_properties(device)
    memory = round(found.total_memory / 2**30)
    return Found(host=host, kind=device.type, cuda=torch.version.cuda, card=found.name, gigabytes=memory)


def compare(store: Store, found: Found, rank: int, size: int) -> None:
    """See that all ranks compute on devices that can work together, before they meet in a collective.

    Through the store, since ranks with different backends would wait in a group for ever.

    Args:
        store: that all ranks reach.
        found: of this rank.
        rank: of this process.
        size: number of ranks.

    Raises:
        UserError: kinds or CUDA versions differ. Cards and memories that differ are a warning.
    """
    if size == 1:
        return
    store.set(f"device of rank {rank}", json.dumps(asdict(found)))
    if rank == 0:
        every = [Found(**json.loads(store.get(f"device of rank {other}"))) for other in range(size)]
        problem, warning = difference(every)
        store.set("devices", json.dumps(problem))
        if warning:
            log.warning("%s", warning)
    if (problem := json.loads(store.get("devices"))) is not None:
        store.set(f"refusal read by rank {rank}", "")
        if rank == 0:  # the store may end with it
            with contextlib.suppress(RuntimeError):
                store.wait([f"refusal read by rank {other}" for other in range(size)], READ_TIME)
        raise UserError(problem)


def difference(every: Sequence[Found]) -> tuple[str | None, str | None]:
    """An error where ranks cannot work together, and a warning where they would wait for one another; else None.

    Args:
        every: the ranks' devices.
    """
    kinds = {found: f"CUDA {found.cuda}" if found.cuda else found.kind for found in every}
    if len(set(kinds.values())) > 1:
        told = _by_host([(kinds[found], found.host) for found in every])
        return (
            f"engine.device: ranks compute on different devices: {told}; see that every node shows its GPUs and has "
            "the same torch, leave out those that do not, or train on the CPU: engine.device=cpu"
        ), None
    cards = [(f"{found.card} with {found.gigabytes} GiB", found.host) for found in every if found.card]
    if len({card for card, _ in cards}) > 1:
        return None, f"ranks compute on different cards, and the slowest sets the pace: {_by_host(cards)}"
    return None, None


def describe_uneven(lanes: int, ranks: int) -> str | None:
    """What is said where ranks wait for others in each update, since they have fewer micro-batches; else None.

    Args:
        lanes: K, the micro-batches of an update.
        ranks: that share them.
    """
    most, rest = -(-lanes // ranks), lanes % ranks
    if not rest:
        return None
    few, idle = ranks - rest, 1 - lanes / (most * ranks)
    those = f"1 of them has {most - 1}" if few == 1 else f"{few} of them have {most - 1}"
    of_all = f"{ranks * (most - 1)} or {ranks * most}" if most > 1 else f"{ranks}"
    return (
        f"stream.micro_batches={lanes} does not divide by {ranks} ranks: {those} micro-batch{'es' * (most != 2)} in an "
        f"update and wait{'s' * (few == 1)} for those with {most}, {idle:.0%} of the GPUs' time; {of_all} would use all"
    )


def _by_host(found: Sequence[tuple[str, str]]) -> str:
    """What is where, the rarest first: that is what somebody has to look at."""
    ranks = Counter(what for what, _ in found)
    told = []
    for what, _ in reversed(ranks.most_common()):
        hosts = list(dict.fromkeys(host for of, host in found if of == what))
        more = f" and {len(hosts) - MOST_HOSTS} more" if len(hosts) > MOST_HOSTS else ""
        told.append(f"{what} on {', '.join(hosts[:MOST_HOSTS])}{more}")
    return "; ".join(told)


def choose_device(local_rank: int | None = None) -> torch.device:
    """A GPU where there are some: that of a rank, or the current one; else the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda") if local_rank is None else torch.device("cuda", local_rank)


def kind(device: torch.device) -> str:
    """What to call it."""
    return device.type


def device_name(device: torch.device) -> str:
    """What people call it: the name of a GPU, or CPU."""
    return "CPU" if is_host(device) else str(torch.cuda.get_device_name(device))


def is_host(device: torch.device) -> bool:
    """Whether its memory is the host's, and the host computes."""
    return device.type == "cpu"


def backend(device: torch.device) -> str:
    """What carries tensors between such devices."""
    return "nccl" if device.type == "cuda" else "gloo"


def seed(device: torch.device, number: int) -> None:
    """Seed what dropout draws from; torch.manual_seed formats a stack for each kind of device that is not there."""
    if is_host(device):
        torch.default_generator.manual_seed(number)
    else:
        torch.get_device_module(device).manual_seed(number)


def wait(device: torch.device) -> None:
    """Until it has done what the host asked for."""
    if not is_host(device):
        torch.get_device_module(device).synchronize(device)
