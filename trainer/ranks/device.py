"""The device that a rank computes on, and what depends on its kind.

Devices are chosen only here. Code that differs between kinds of devices is in `model.kernels` and `trainer.engines`;
everything else asks this module and never inspects a device.
"""

import contextlib
import functools
import json
import logging
import os
import re
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta

import torch
from torch.distributed import Store  # type: ignore[attr-defined]

from configs import UserError
from configs.process.gpus import INSTEAD, no_gpu, num_gpus, refuse_missing, remedy, unusable, why_unusable

MOST_HOSTS = 4
"""Maximum number of hosts in a message; the others are counted."""

NAMING_TIME = timedelta(minutes=1)
"""By which a collective on GPUs outlasts a watchdog's limit, so that the watchdog names the rank first: `time_out`."""

READ_TIME = timedelta(seconds=20)
"""Seconds for which rank 0 waits until the others have read why they are refused."""

log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True, frozen=True)
class RankDevice:
    """The device of a rank."""

    host: str
    kind: str
    """torch's name of the kind of device."""
    cuda: str | None = None
    """The CUDA version that torch was built for; None on a CPU."""
    card: str | None = None
    gigabytes: int | None = None
    """The card's memory in GiB, rounded."""
    unreached: str = ""
    """Why the rank does not reach another one."""


def settle_device(asked: str) -> None:
    """Make this process use the device that `engine.device` asks for, before anything asks CUDA for GPUs.

    Raises:
        UserError: there are GPUs that torch cannot use, a GPU that is asked for or named is not there, or DeepSpeed is
            told to use another device.
    """
    if asked == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    elif not torch.cuda.is_available():
        refuse_missing(os.environ)
        if present := num_gpus(os.environ):
            raise unusable(present, why_unusable() or _torchs_reason())
        if asked == "cuda":
            raise no_gpu()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if (given := os.environ.get("DS_ACCELERATOR", device)) != device:
        raise UserError(f"DS_ACCELERATOR: {given!r} with engine.device={asked}, which is {device} here; leave it unset")


@functools.cache
def warn_of_unusable_gpus() -> None:
    """Warn if the CPU is used although there are GPUs."""
    if not torch.cuda.is_available() and (present := num_gpus(os.environ)):
        log.warning("%s", str(unusable(present, why_unusable() or _torchs_reason())).removeprefix("engine.device: "))


def _torchs_reason() -> str:
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return f"torch {torch.__version__} says: {' '.join(str(error).split()).rstrip('.')}"
    return f"torch {torch.__version__} cannot use them"


def check_card(device: torch.device) -> None:
    """Refuse a card that torch has no code for: its first kernel would fail.

    Raises:
        UserError: the card is older, or much newer, than those that torch was built for.
    """
    if is_host(device) or torch.version.cuda is None:
        return
    capability, built_for = torch.cuda.get_device_capability(device), torch.cuda.get_arch_list()
    if built_for and not has_code_for(capability, built_for):
        raise UserError(
            f"engine.device: {device_name(device)} has compute capability {capability[0]}.{capability[1]}, and torch "
            f"{torch.__version__} is built for {', '.join(built_for)}; {remedy(capability)}, {INSTEAD}"
        )


def has_code_for(capability: tuple[int, int], architectures: Sequence[str]) -> bool:
    """Whether binaries or PTX for these architectures run on a card (CUDA C++ Programming Guide, 'Compute capability').

    Args:
        capability: of the card, major and minor.
        architectures: as torch names them: sm_80 is a binary for cards from 8.0 to before 9.0, sm_90a for 9.0 alone,
            and compute_90 PTX for all from 9.0 on.
    """
    for name in architectures:
        if (match := re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name)) is None:
            continue
        least = int(match[2]), int(match[3])
        is_same_major = least[0] == capability[0] or match[1] == "compute"
        if capability == least or (match[4] != "a" and capability >= least and is_same_major):
            return True
    return False


def describe(device: torch.device) -> RankDevice:
    """Describe a rank's device to the other ranks."""
    host = socket.gethostname()
    if is_host(device):
        return RankDevice(host=host, kind=device.type)
    card = torch.cuda.get_device_properties(device)
    memory = round(card.total_memory / 2**30)
    return RankDevice(host=host, kind=device.type, cuda=torch.version.cuda, card=card.name, gigabytes=memory)


def compare(store: Store, own: RankDevice, rank: int, size: int) -> None:
    """Check, before the first collective, that ranks reach one another, and that their devices can work together.

    This goes through the store, since ranks with different backends would wait for each other for ever.

    Args:
        store: shared by all ranks.
        own: the device of this rank.
        rank: of this process.
        size: number of ranks.

    Raises:
        UserError: a rank does not reach another, or kinds or CUDA versions differ. Different cards or memory sizes are
            only a warning.
    """
    if size == 1:
        return
    store.set(f"device of rank {rank}", json.dumps(asdict(own)))
    if rank == 0:
        every = [RankDevice(**json.loads(store.get(f"device of rank {other}"))) for other in range(size)]
        problem, warning = difference(every)
        store.set("devices", json.dumps(problem))
        if warning:
            log.warning("%s", warning)
    if (problem := json.loads(store.get("devices"))) is not None:
        store.set(f"refusal read by rank {rank}", "")
        if rank == 0:  # the store may end with rank 0
            with contextlib.suppress(RuntimeError):
                store.wait([f"refusal read by rank {other}" for other in range(size)], READ_TIME)
        raise UserError(problem)


def difference(every: Sequence[RankDevice]) -> tuple[str | None, str | None]:
    """An error if ranks cannot work together, a warning if some would wait for others; else None.

    Args:
        every: the devices of all ranks.
    """
    if unreached := next((device.unreached for device in every if device.unreached), ""):
        return unreached, None
    kinds = {device: f"CUDA {device.cuda}" if device.cuda else device.kind for device in every}
    if len(set(kinds.values())) > 1:
        told = _by_host([(kinds[device], device.host) for device in every])
        return (
            f"engine.device: ranks compute on different devices: {told}; see that every node shows its GPUs and has "
            "the same torch, leave out those that do not, or train on the CPU: engine.device=cpu"
        ), None
    cards = [(f"{device.card} with {device.gigabytes} GiB", device.host) for device in every if device.card]
    if len({card for card, _ in cards}) > 1:
        return None, f"ranks compute on different cards, and the slowest sets the pace: {_by_host(cards)}"
    return None, None


def describe_uneven(lanes: int, ranks: int) -> str | None:
    """A warning if some ranks wait in each update because they have fewer micro-batches; else None.

    Args:
        lanes: K, the micro-batches of an update.
        ranks: number of ranks that divide them.
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


def _by_host(devices: Sequence[tuple[str, str]]) -> str:
    """Which hosts have what, the rarest first, since that is what to look at."""
    ranks = Counter(what for what, _ in devices)
    told = []
    for what, _ in reversed(ranks.most_common()):
        hosts = list(dict.fromkeys(host for of, host in devices if of == what))
        more = f" and {len(hosts) - MOST_HOSTS} more" if len(hosts) > MOST_HOSTS else ""
        told.append(f"{what} on {', '.join(hosts[:MOST_HOSTS])}{more}")
    return "; ".join(told)


def choose_device(local_rank: int | None = None) -> torch.device:
    """The rank's GPU, or the current one, if there are GPUs; else the CPU.

    Raises:
        UserError: torch has no code for the card.
    """
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda") if local_rank is None else torch.device("cuda", local_rank)
    check_card(device)
    return device


def kind(device: torch.device) -> str:
    """torch's name of the kind of device."""
    return device.type


def device_name(device: torch.device) -> str:
    """The name of the GPU, or CPU."""
    return "CPU" if is_host(device) else str(torch.cuda.get_device_name(device))


def is_host(device: torch.device) -> bool:
    """Whether the device is the host itself."""
    return device.type == "cpu"


def backend(device: torch.device) -> str:
    """The communication backend for such devices."""
    return "nccl" if device.type == "cuda" else "gloo"


def time_out(device: torch.device, minutes: float) -> timedelta:
    """How long a collective on such devices may take: on GPUs `NAMING_TIME` longer than asked.

    NCCL kills every rank that has waited too long. If a watchdog's limit is as long, which is the default, the rank
    that the others wait for must be named first, and for its stacks and NCCL's trace that takes seconds.

    Args:
        device: of the ranks.
        minutes: `engine.communication_timeout_minutes`.
    """
    return timedelta(minutes=minutes) + (NAMING_TIME if backend(device) == "nccl" else timedelta())


def seed(device: torch.device, number: int) -> None:
    """Seed dropout's generator. torch.manual_seed is slow: it formats a stack trace for each absent kind of device."""
    if is_host(device):
        torch.default_generator.manual_seed(number)
    else:
        torch.get_device_module(device).manual_seed(number)


def wait(device: torch.device) -> None:
    """Wait until the device has finished its queued work."""
    if not is_host(device):
        torch.get_device_module(device).synchronize(device)
