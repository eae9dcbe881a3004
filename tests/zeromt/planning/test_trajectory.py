"""K and budgets for any number of ranks."""

from hypothesis import given
from hypothesis import strategies as st

from configs import StreamSection
from zeromt.planning.trajectory import MAX_MICRO_BATCHES, split_update


@given(
    micro_batches=st.integers(1, 300),
    tokens=st.integers(100, 9000),
    source=st.integers(100, 9000),
    world_size=st.integers(1, 5000),
    most=st.integers(1, 20_000),
    longest=st.integers(1, 100),
)
def test_an_update_keeps_its_tokens(
    micro_batches: int, tokens: int, source: int, world_size: int, most: int, longest: int
) -> None:
    stream = StreamSection(micro_batches=micro_batches, source_tokens=source, target_tokens=tokens)
    found = split_update(stream, world_size, most=most, longest=longest)
    if found is None:
        fewest = max(-(-micro_batches * tokens // most), micro_batches)
        assert most < longest or fewest + world_size > MAX_MICRO_BATCHES
        return
    assert world_size <= found.number <= MAX_MICRO_BATCHES
    assert found.slots * world_size >= found.number > (found.slots - 1) * world_size
    assert found.idle == 1 - found.number / (found.slots * world_size)
    assert longest <= found.target_tokens <= most
    assert found.source_tokens >= longest
    if found.is_same:
        assert (found.number, found.source_tokens, found.target_tokens) == (micro_batches, source, tokens)
        return
    assert found.number % world_size == 0
    configured = micro_batches * tokens
    if found.target_tokens > longest:
        assert configured - found.number < found.update_tokens <= configured
        assert not found.is_larger
    else:
        assert found.update_tokens > configured - found.number
        assert found.is_larger == (found.update_tokens > configured)


def test_what_is_configured_stays_where_it_can() -> None:
    stream = StreamSection(micro_batches=8, source_tokens=3000, target_tokens=4000)
    for world_size in (1, 2, 3, 8):
        found = split_update(stream, world_size, most=4000, longest=256)
        assert found is not None
        assert found.is_same
    smaller = split_update(stream, 3, most=1000, longest=256)
    assert smaller is not None
    assert (smaller.number, smaller.slots, smaller.target_tokens, smaller.source_tokens) == (33, 11, 969, 726)
