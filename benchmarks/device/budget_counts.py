"""Counts kernels, bytes and host waits of an update on the pseudo device.

The real trainer loop, DeepSpeed engine and autograd run. Only the micro-batches are synthetic, and nothing is saved or
evaluated.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from benchmarks.device.budget_model import make_objective
from configs import RunConfig
from data_pipeline.stream.batch import MicroBatch
from model.flops import BatchShape
from tests.device.accelerator import use_pseudo_device
from tests.device.meter import Meter, metered
from tests.device.pseudo import DEVICE
from trainer.checkpoint.state import TrainerState
from trainer.context import RunContext
from trainer.engines.deepspeed.engine import DeepSpeedEngine
from trainer.lookahead import Lookahead
from trainer.loop import Trainer
from trainer.ranks.activities import Activities
from trainer.ranks.distributed import World
from trainer.records.metrics import Metrics

WARM_UP = 2
"""Updates before the counted one: the first creates the optimizer's states, the next let ZeRO-3 learn its order."""

KINDS = {
    "c10d::allreduce_": "all_reduce",
    "c10d::allgather_": "all_gather",
    "c10d::_allgather_base_": "all_gather",
    "c10d::allgather_into_tensor_coalesced_": "all_gather",
    "c10d::reduce_scatter_": "reduce_scatter",
    "c10d::_reduce_scatter_base_": "reduce_scatter",
    "c10d::reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "c10d::broadcast_": "broadcast",
}
"""Collectives by torch's operators."""


@dataclasses.dataclass(kw_only=True, frozen=True)
class Counted:
    """The counts of one update in the middle of training."""

    micro_batches: Sequence[Meter]
    """Forward and backward of each micro-batch, including DeepSpeed's work in them."""
    step: Meter
    update: Meter
    """The whole update, including the loop around it."""


class LoneWorld(World):
    """One rank of many on the pseudo device: collectives return at once and leave their tensors unchanged."""

    def __init__(self, rank: int, size: int) -> None:
        use_pseudo_device()
        self.rank, self.size, self.local_rank, self.device = rank, size, 0, DEVICE
        dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
        from deepspeed.runtime.zero import partitioned_param_coordinator

        partitioned_param_coordinator.assert_ints_same_as_other_ranks = lambda *_: None  # it would communicate
        self._control = dist.group.WORLD

    def gather(self, item: Any, *_: type) -> list[Any]:
        """As if all ranks had the same item."""
        return [item] * self.size

    def from_main(self, item: Any, *_: type) -> Any:
        """As if rank 0 had the same item."""
        return item

    def begin_sums(self, integers: Sequence[int], floats: Sequence[float]) -> Any:
        """As if all other ranks had zeros."""
        return lambda: (list(integers), list(floats))


class _SyntheticReader:
    """A reader that returns the same synthetic micro-batches for ever."""

    def __init__(self, shape: BatchShape, num: int) -> None:
        self.datasets: list[Any] = []
        self.epoch, self.update = 0, 0
        source, target = (np.full((shape.rows, length), 5) for length in (shape.source, shape.target))
        self._micro_batches = [
            MicroBatch(
                lane=lane,
                dataset=0,
                pair_ids=np.arange(shape.rows),
                source=source,
                target_input=target,
                target_output=target,
            )
            for lane in range(num)
        ]

    def next_update(self) -> list[MicroBatch]:
        self.update += 1
        return self._micro_batches

    def state(self) -> None:
        """No state: nothing is saved."""


class _NoSaver:
    is_writing, in_flight, is_overdue, saved_step = False, False, False, None

    def commit(self) -> float:
        return 0.0


class _CountedError(Exception):
    """Ends the loop once the update is counted."""


class _Watch:
    """The loop's stop check, called at every update: counts one update, then ends the loop."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._num_asked = 0
        self._open: Any = None
        self.counted: Counted | None = None

    def __call__(self) -> bool:
        self._num_asked += 1
        if self._num_asked == WARM_UP + 3:  # it is called twice before the first update: at the start, and to fetch it
            self._open = self._counting()
            self._open.__enter__()
        elif self._num_asked == WARM_UP + 4:
            self._open.__exit__(None, None, None)
            raise _CountedError
        return False

    @contextmanager
    def _counting(self) -> Iterator[None]:
        engine, accumulate, step = self._engine, self._engine.accumulate, self._engine.step
        micro_batches: list[Meter] = []
        steps: list[Meter] = []
        engine.accumulate = _counting_into(micro_batches, accumulate)
        engine.step = _counting_into(steps, step)
        with metered() as update:
            yield
        engine.accumulate, engine.step = accumulate, step
        self.counted = Counted(micro_batches=micro_batches, step=steps[0], update=update)


def _counting_into(meters: list[Meter], function: Any) -> Any:
    def counted(*args: Any, **kwargs: Any) -> Any:
        with metered() as meter:
            out = function(*args, **kwargs)
        meters.append(meter)
        return out

    return counted


def count_update(config: RunConfig, world: World, *, shape: BatchShape, num_micro_batches: int, vocab: int) -> Counted:
    """Count one update of this rank, after a few others.

    Args:
        config: its model, optimizer and engine are used.
        world: on the pseudo device.
        shape: shape of every micro-batch; no row is padded.
        num_micro_batches: number of this rank's micro-batches in an update.
        vocab: vocabulary size.
    """
    objective = make_objective(config.model, vocab)
    engine = DeepSpeedEngine(
        objective,
        section=config.engine,
        optimizer=config.optimizer,
        precision="bf16",
        device=world.device,
        ema_decay=config.training.ema_decay,
    )
    watch, reader = _Watch(engine), _SyntheticReader(shape, num_micro_batches)
    context = RunContext(
        config=config,
        world=world,
        engine=engine,
        updates=Lookahead(cast(Any, reader), world),
        state=TrainerState(),
        metrics=Metrics(None),
        activities=Activities(config),
        stop_requested=watch,
    )
    try:
        Trainer(context, evaluator=cast(Any, None), saver=cast(Any, _NoSaver())).fit()
    except _CountedError:
        engine.close()
    assert watch.counted is not None
    return watch.counted


def counts(counted: Counted, model: int) -> dict[str, int]:
    """Kernels that DeepSpeed adds to the first micro-batch and at most to a later one, kernels of the step, and waits.

    Args:
        counted: the counted update.
        model: kernels of a micro-batch of the model without the engine.
    """
    more = [meter.num_kernels - model for meter in counted.micro_batches]
    return {
        "added": more[0],
        "added_later": max(more[1:], default=more[0]),
        "step": counted.step.num_kernels,
        "waits": counted.update.waits.total(),
    }


def collectives(counted: Counted) -> list[dict[str, Any]]:
    """What an update sends, in its order: when, kind, bytes and how many of that kind one after the other.

    Bytes are those of this rank's side that has more, given or made: 8 ranks that gather 100 each have 800.
    """
    places = {id(call): f"micro-batch {n}" for n, meter in enumerate(counted.micro_batches, 1) for call in meter.calls}
    places |= {id(call): "step" for call in counted.step.calls}
    sent: list[dict[str, Any]] = []
    for call in (call for call in counted.update.calls if call.sent):
        place = {"when": places.get(id(call), "loop"), "kind": KINDS.get(call.operator, call.operator)}
        if not sent or place.items() - sent[-1].items():
            sent.append({**place, "times": 0, "bytes": 0})
        sent[-1]["times"] += 1
        sent[-1]["bytes"] += call.sent
    return sent


def added(micro_batch: Meter, model: Sequence[Meter]) -> Counter[str]:
    """Kernels by line of code that DeepSpeed adds to a micro-batch of the model."""
    lines = micro_batch.kernels_by("line")
    for meter in model:
        lines.subtract(meter.kernels_by("line"))
    return Counter({line: number for line, number in lines.items() if number})
