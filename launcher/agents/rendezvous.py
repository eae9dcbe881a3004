"""torchrun's rendezvous without one: when torchrun asks, the nodes of a job have met (`launcher.agents.peers`).

torchrun's own (c10d) opens a TCP store on every interface, and unpickles what stands in it. Here nothing is pickled: an
agent that is alone keeps its store in its own memory, and several nodes share that of their peers.
"""

import importlib
from typing import Any

from typing_extensions import override

BACKEND = "zeromt"
"""Its name: torchrun's `--rdzv-backend`."""


def offer(store: Any, *, run_id: str, rank: int, num_nodes: int, endpoint: tuple[str, int]) -> None:
    """Make torchrun, in this process, use a store at which the nodes have met.

    Args:
        store: a `torch.distributed.Store` that all nodes share.
        run_id: torchrun's `--rdzv-id`.
        rank: of this node.
        num_nodes: of the job.
        endpoint: host and port of a TCP store at which the ranks meet; port 0: there is none, and one node.
    """
    registry = importlib.import_module("torch.distributed.elastic.rendezvous").rendezvous_handler_registry
    met = Met(store, run_id=run_id, rank=rank, num_nodes=num_nodes, endpoint=endpoint)
    registry.register(BACKEND, lambda _: met)


class Met:
    """What torchrun calls of a `torch.distributed.elastic.rendezvous.RendezvousHandler`; no node comes later."""

    use_agent_store = True
    """The ranks are clients of the store at MASTER_ADDR and MASTER_PORT; none opens one."""

    @override
    def __init__(self, store: Any, *, run_id: str, rank: int, num_nodes: int, endpoint: tuple[str, int]) -> None:
        self._store = store
        self._run_id = run_id
        self._rank = rank
        self._num_nodes = num_nodes
        self._endpoint = endpoint

    def next_rendezvous(self) -> Any:
        """Where the nodes have met."""
        api = importlib.import_module("torch.distributed.elastic.rendezvous")
        return api.RendezvousInfo(self._store, self._rank, self._num_nodes, api.RendezvousStoreInfo(*self._endpoint))

    def get_backend(self) -> str:
        """Its name."""
        return BACKEND

    def get_run_id(self) -> str:
        """torchrun's `--rdzv-id`."""
        return self._run_id

    def is_closed(self) -> bool:
        """Never: it ends with the agent."""
        return False

    def set_closed(self) -> None:
        """Nothing is left to close."""

    def num_nodes_waiting(self) -> int:
        """None: all have come, and ranks are restarted by new agents."""
        return 0

    def shutdown(self) -> bool:
        """Nothing is left to end."""
        return True
