"""K and budgets when the number of GPUs changes: an update keeps its tokens, and its micro-batches where it can."""

from dataclasses import dataclass

from configs import StreamSection

MOST_MICRO_BATCHES = 65_536
"""That `stream.micro_batches` allows."""


@dataclass(kw_only=True, slots=True, frozen=True)
class MicroBatches:
    """How an update is cut."""

    number: int
    """K, `stream.micro_batches`."""
    source_tokens: int
    """Budget of one, padded."""
    target_tokens: int
    slots: int
    """Micro-batches of the busiest rank: its accumulation."""
    idle: float
    """Fraction of the ranks' slots that hold nothing."""
    is_same: bool
    """Whether K and budgets are those of the configuration: then the run goes on with the same updates."""
    is_larger: bool
    """Whether an update holds more than the configuration's."""

    @property
    def update_tokens(self) -> int:
        """Budget of an update in padded target tokens."""
        return self.number * self.target_tokens


def cut(stream: StreamSection, world_size: int, *, most: int, longest: int) -> MicroBatches | None:
    """The micro-batches of an update for so many ranks.

    Those of the configuration, where every rank gets one and they fit. Else the fewest that are a multiple of the
    ranks and fit, with budgets so much smaller: the update has the same tokens, cut otherwise. With more ranks than
    the update has pairs of the longest kind, every micro-batch holds one of them, and the update grows.

    Args:
        stream: the run's K and budgets.
        world_size: number of ranks.
        most: target tokens of a micro-batch that fit a device.
        longest: tokens of the longest pair, which a micro-batch must hold.

    Returns:
        None where not even the longest pair fits, or where K would be more than a configuration allows.
    """
    if stream.micro_batches >= world_size and stream.target_tokens <= most:
        return _micro_batches(stream, stream.micro_batches, stream.source_tokens, stream.target_tokens, world_size)
    if most < longest:
        return None
    total = stream.micro_batches * stream.target_tokens
    number = _multiple(max(-(-total // most), stream.micro_batches), world_size)
    if number > MOST_MICRO_BATCHES:
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


def _multiple(number: int, of: int) -> int:
    return -(-number // of) * of
