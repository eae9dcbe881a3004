"""Stragglers and percentiles of the step time."""

import math
import statistics
from collections.abc import Sequence


def stragglers(seconds_per_token_by_rank: Sequence[float], factor: float = 1.5) -> list[int]:
    """Ranks that took more than `factor` times the median time per token.

    With an even number of ranks the lower median is used, so that one slow rank of two is found.

    Args:
        seconds_per_token_by_rank: compute time of each rank over its tokens; for a rank without tokens not finite or 0,
            and then ignored.
        factor: how much slower than the median a rank must be.
    """
    measured = [s for s in seconds_per_token_by_rank if math.isfinite(s) and s > 0]
    if len(measured) < 2:
        return []
    limit = factor * statistics.median_low(measured)
    return [rank for rank, s in enumerate(seconds_per_token_by_rank) if math.isfinite(s) and s > limit]


def describe_stragglers(seconds_per_token_by_rank: Sequence[float], ranks: Sequence[int]) -> str:
    """The log's words for them: `rank 3 needs 2.1 times the median's seconds for a token`."""
    median = statistics.median_low([s for s in seconds_per_token_by_rank if math.isfinite(s) and s > 0])
    return "; ".join(
        f"rank {rank} needs {seconds_per_token_by_rank[rank] / median:.1f} times the median's seconds for a token"
        for rank in ranks
    )


def step_times(seconds: Sequence[float]) -> tuple[float, float]:
    """Median and 95th percentile (nearest rank) of the seconds of updates; NaN without updates."""
    if not seconds:
        return math.nan, math.nan
    ordered = sorted(seconds)
    return statistics.median(ordered), ordered[math.ceil(0.95 * len(ordered)) - 1]
