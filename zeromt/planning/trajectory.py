"""K and budgets for any number of GPUs: an update keeps its number of tokens, and if possible its micro-batches."""

from dataclasses import dataclass

from configs import StreamSection
from zeromt.planning.costs.model_states import round_up

MAX_MICRO_BATCHES = 65_536
"""Upper bound of `stream.micro_batches`."""


@dataclass(kw_only=True, slots=True, frozen=True)
class MicroBatches:
    """How an update is split into micro-batches."""

    number: int
    """K, `stream.micro_batches`."""
    source_tokens: int
    """Budget of a micro-batch in padded source tokens."""
    target_tokens: int
    """Budget of a micro-batch in padded target tokens."""
    slots: int
    """Micro-batches per rank (gradient accumulation), of the rank that has the most."""
    idle: float
    """Fraction of all ranks' slots that have no micro-batch."""
    is_same: bool
    """Whether K and budgets are those of the configuration, so that the updates are the same."""
    is_larger: bool
    """Whether an update has a larger budget than the configuration's."""

    @property
    def update_tokens(self) -> int:
        """Budget of an update in padded target tokens."""
        return self.number * self.target_tokens


def split_update(stream: StreamSection, world_size: int, *, most: int, longest: int) -> MicroBatches | None:
    """How an update is split for a number of ranks.

    The configured micro-batches are kept if every rank gets one and they fit into memory. Otherwise K becomes the
    smallest multiple of the number of ranks whose micro-batches fit, and the budgets shrink so that the update keeps
    its number of tokens. With so many ranks that a micro-batch would be smaller than the longest pair, the budget is
    that of the longest pair, and the update grows.

    Args:
        stream: the run's K and budgets.
        world_size: number of ranks.
        most: target tokens of the largest micro-batch that fits into a device's memory.
        longest: tokens of the longest pair, for which a micro-batch must have room.

    Returns:
        None if not even the longest pair fits, or if K would be larger than a configuration allows.
    """
    if stream.micro_batches >= world_size and stream.target_tokens <= most:
        return _micro_batches(stream, stream.micro_batches, stream.source_tokens, stream.target_tokens, world_size)
    if most < longest:
        return None
    total = stream.micro_batches * stream.target_tokens
    number = round_up(max(-(-total // most), stream.micro_batches), world_size)
    if number > MAX_MICRO_BATCHES:
        return None
    target = max(total // number, longest)
    source = max(target * stream.source_tokens // stream.target_tokens, longest)
    return _micro_batches(stream, number, source, target, world_size)


def _micro_batches(stream: StreamSection, number: int, source: int, target: int, world_size: int) -> MicroBatches:
    slots = -(-number // world_size)
    configured = stream.micro_batches, stream.source_tokens, stream.target_tokens
    return MicroBatches(
        number=number,
        source_tokens=source,
        target_tokens=target,
        slots=slots,
        idle=1 - number / (slots * world_size),
        is_same=(number, source, target) == configured,
        is_larger=number * target > stream.micro_batches * stream.target_tokens,
    )
