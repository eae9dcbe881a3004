"""Messages between ranks: objects, as JSON, and sums of a few numbers in the background.

**Objects** go as JSON in tensors. torch's object collectives (`all_gather_object` and the like) unpickle what arrives,
so who reaches a rank's port could run code there; nothing else in the tree may use them (a test sees to it).

**Sums** go first within nodes and then between them. gloo's own all-reduce is a ring of 2 (N - 1) hops, 1,022 with 512
ranks, and every rank waits for it. Here the ranks of a node send their numbers to the node's first rank; the first
ranks add them up by recursive doubling (Thakur, Rabenseifner and Gropp, 2005, 'Optimization of Collective Communication
Operations in MPICH') and send the sums back: 8 hops with 512 ranks on 64 nodes. A thread does this while the rank
computes.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from configs import UserError
from data_pipeline.stream.prefetch import Background
from trainer.runs.run_lock import RunLockedError

Sums = tuple[list[int], list[float]]
"""Most integers, and most floats, of a message."""
TAG = 38
"""Tag of these messages; nothing else is sent point to point in their group."""


def packed(item: Any) -> bytes:
    """An object as JSON: numbers, text, lists, tuples, sets, dictionaries, paths, dataclasses and errors of the user.

    Raises:
        TypeError: it holds something else.
    """
    return json.dumps(_plain(item)).encode()


def unpacked(content: bytes, *kinds: type) -> Any:
    """The object that `packed` was given.

    Args:
        content: JSON, perhaps of a stranger: nothing is called but constructors of these dataclasses.
        kinds: dataclasses that may be in it.

    Raises:
        ValueError: it is not that.
    """
    known: dict[str, Callable[[Any], Any]] = {
        "tuple": tuple,
        "set": set,
        "dict": dict,
        "Path": Path,
        "UserError": UserError,
        "RunLockedError": RunLockedError,
        **{kind.__name__: _maker(kind) for kind in kinds},
    }

    def made(tree: dict[str, Any]) -> Any:
        [(name, value)] = tree.items()
        if name not in known:
            raise ValueError(f"ranks sent {name!r}; expected is one of {', '.join(known)}")
        return known[name](value)

    return json.loads(content, object_hook=made)


def _maker(kind: Any) -> Callable[[Any], Any]:
    names = [field.name for field in dataclasses.fields(kind)]
    return lambda values: kind(**dict(zip(names, values, strict=True)))


def _plain(item: Any) -> Any:
    """For JSON: every kind but those that JSON has itself is an object of one key, its name."""
    if isinstance(item, np.generic):
        item = item.item()
    if item is None or isinstance(item, (bool, int, float, str)):
        return item
    if isinstance(item, list):
        return [_plain(one) for one in item]
    if isinstance(item, (tuple, set, frozenset)):
        return {"tuple" if isinstance(item, tuple) else "set": [_plain(one) for one in item]}
    if isinstance(item, dict):
        return {"dict": [[_plain(key), _plain(value)] for key, value in item.items()]}
    if isinstance(item, Path):
        return {"Path": str(item)}
    if isinstance(item, UserError):
        return {"RunLockedError" if isinstance(item, RunLockedError) else "UserError": str(item)}
    if dataclasses.is_dataclass(item):
        return {type(item).__name__: [_plain(getattr(item, field.name)) for field in dataclasses.fields(item)]}
    raise TypeError(f"ranks cannot send {type(item).__name__} to one another")


def gathered(item: Any, *kinds: type, group: Any = None) -> list[Any]:
    """All ranks' objects in rank order, on every rank.

    Args:
        item: see `packed`.
        kinds: dataclasses that may be in it.
        group: over gloo; None: the default one.
    """
    mine = torch.frombuffer(bytearray(packed(item)), dtype=torch.uint8)
    lengths = [torch.empty(1, dtype=torch.int64) for _ in range(dist.get_world_size(group))]
    dist.all_gather(lengths, torch.tensor([len(mine)]), group=group)
    longest = max(int(length) for length in lengths)
    contents = [torch.empty(longest, dtype=torch.uint8) for _ in lengths]
    dist.all_gather(contents, torch.nn.functional.pad(mine, (0, longest - len(mine))), group=group)
    return [unpacked(content[: int(n)].numpy().tobytes(), *kinds) for content, n in zip(contents, lengths, strict=True)]


def from_first(item: Any, *kinds: type, group: Any) -> Any:
    """Rank 0's object, on every rank; for the arguments see `gathered`."""
    if dist.get_rank() == 0:
        content = torch.frombuffer(bytearray(packed(item)), dtype=torch.uint8)
        dist.broadcast(torch.tensor([len(content)]), 0, group=group)
        dist.broadcast(content, 0, group=group)
        return item
    length = torch.empty(1, dtype=torch.int64)
    dist.broadcast(length, 0, group=group)
    content = torch.empty(int(length), dtype=torch.uint8)
    dist.broadcast(content, 0, group=group)
    return unpacked(content.numpy().tobytes(), *kinds)


@dataclass(kw_only=True, slots=True, frozen=True)
class Turn:
    """A rank's next action for a sum: send its numbers, or receive from ranks one after the other, or both."""

    to: tuple[int, ...] = ()
    by: tuple[int, ...] = ()
    """Ranks to receive from, in the order in which their numbers are added."""
    then: Literal["add", "take"] = "add"
    """take: what is received is the sum, and replaces what this rank has."""


def turns(rank: int, nodes: Sequence[int]) -> list[Turn]:
    """The turns of a rank for a sum over all ranks; they fix the order of adding, whichever message arrives first.

    Args:
        rank: of the world.
        nodes: the node number of each rank; any numbers.
    """
    members: dict[int, list[int]] = {}
    for other, node in enumerate(nodes):
        members.setdefault(node, []).append(other)
    first, *others = members[nodes[rank]]
    if rank != first:
        return [Turn(to=(first,)), Turn(by=(first,), then="take")]
    firsts = [ranks[0] for ranks in members.values()]
    done = [Turn(by=tuple(others)), *_between(firsts.index(rank), firsts), Turn(to=tuple(others))]
    return [turn for turn in done if turn.to or turn.by]


def _between(index: int, firsts: Sequence[int]) -> list[Turn]:
    """Recursive doubling between the nodes' first ranks; those beyond a power of two are first added to another one."""
    power = 1 << (len(firsts).bit_length() - 1)
    if index >= power:
        partner = firsts[index - power]
        return [Turn(to=(partner,)), Turn(by=(partner,), then="take")]
    extra = firsts[index + power : index + power + 1]
    doubling = [firsts[index ^ (1 << bit)] for bit in range(power.bit_length() - 1)]
    return [Turn(by=tuple(extra)), *(Turn(to=(p,), by=(p,)) for p in doubling), Turn(to=tuple(extra))]


class Messages:
    """Sums of a few numbers over all ranks, one after the other, in the order in which they are begun."""

    def __init__(self, group: Any, rank: int, nodes: Sequence[int]) -> None:
        """Start the thread.

        Args:
            group: of all ranks, over gloo.
            rank: of this process.
            nodes: the node number of each rank.
        """
        self._group = group
        self._turns = turns(rank, nodes)
        self._background = Background()

    def begin(self, integers: Sequence[int], floats: Sequence[float]) -> Callable[[], Sums]:
        """Begin a sum; all ranks must begin the same sums in the same order.

        Args:
            integers: of 64 bits; the sums wrap.
            floats: added in fp64, in an order that is the same in every run on as many ranks and nodes.

        Returns:
            A function that waits for the sums, which are bitwise the same on all ranks.
        """
        mine = np.concatenate(
            [np.asarray(integers, dtype=np.int64), np.asarray(floats, dtype=np.float64).view(np.int64)]
        )
        done = self._background.begin(lambda: self._sum(mine, len(integers)))
        return lambda: (done()[: len(integers)].tolist(), done()[len(integers) :].view(np.float64).tolist())

    def close(self) -> None:
        """End the thread; every sum must have been waited for."""
        self._background.close()

    def _sum(self, numbers: NDArray[np.int64], num_integers: int) -> NDArray[np.int64]:
        works = []
        for turn in self._turns:
            sent = torch.from_numpy(numbers.copy())  # it is being sent while the next is added
            works += [(dist.isend(sent, other, group=self._group, tag=TAG), sent) for other in turn.to]
            for other in turn.by:
                received = torch.empty(len(numbers), dtype=torch.int64)
                work = dist.irecv(received, other, group=self._group, tag=TAG)
                assert work is not None
                work.wait()
                numbers = _added(numbers, received.numpy(), num_integers) if turn.then == "add" else received.numpy()
        for work, _ in works:
            assert work is not None
            work.wait()
        return numbers


def _added(mine: NDArray[np.int64], other: NDArray[np.int64], num_integers: int) -> NDArray[np.int64]:
    """Add buffers: the leading part as integers, the rest as fp64."""
    floats = mine[num_integers:].view(np.float64) + other[num_integers:].view(np.float64)
    return np.concatenate([mine[:num_integers] + other[:num_integers], floats.view(np.int64)])
