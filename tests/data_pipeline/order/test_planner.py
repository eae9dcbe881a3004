import hashlib
import itertools
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from configs import StreamSection
from data_pipeline.order.randomness import Purpose, permutation
from data_pipeline.order.stream_plan import StreamPlan, Units, choose_units, cut_windows, deal, lane_order
from data_pipeline.order.windows import Budget, plan_window
from tests.data_pipeline.order.synthetic import even_table, random_lengths


def make_plan(pairs: int, section: StreamSection, seed: int = 1, block: int = 16, shard: int = 64) -> StreamPlan:
    lengths = random_lengths(pairs, seed)
    return StreamPlan(lengths, even_table(lengths, block, shard), section, seed=seed)


def epoch(plan: StreamPlan, pass_: int = 0) -> list[list[list[int]]]:
    """The pair ids of every micro-batch of every lane."""
    return [[m.tolist() for m in plan.micro_batches(pass_, lane)] for lane in range(plan.num_lanes)]


def test_blocks_are_dealt_where_each_lane_gets_eight() -> None:
    lengths = random_lengths(4096, 1)
    by_block = lengths.reshape(256, 16, 2).sum(axis=(1, 2), dtype=np.int64)
    blocks = Units(np.arange(0, 4097, 16), by_block)
    for num_lanes, window, units in [(4, 4096, 256), (32, 4096, 256), (33, 4096, 4096), (4, 16, 256), (4, 15, 4096)]:
        chosen = choose_units(blocks, lengths, num_lanes=num_lanes, window_pairs=window)
        assert chosen.bounds.tolist() == list(range(0, 4097, 4096 // units))
        assert chosen.tokens.tolist() == lengths.reshape(units, -1).sum(axis=1, dtype=np.int64).tolist()


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=700).map(lambda a: np.array(a, dtype=np.int64)),
    st.integers(1, 80),
    st.integers(0, 5),
)
def test_a_deal_gives_each_unit_to_one_lane(tokens: NDArray[np.int64], num_lanes: int, pass_: int) -> None:
    dealt = deal(tokens, num_lanes, seed=1, dataset=0, pass_=pass_)
    shares = dealt[:num_lanes]
    assert sorted(np.concatenate(shares).tolist()) == list(range(len(tokens)))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    ordered = [lane_order(s, seed=1, dataset=0, pass_=pass_, lane=n) for n, s in enumerate(shares)]
    assert [sorted(a) for a in ordered] == [sorted(s) for s in shares]


def test_lanes_are_balanced_by_tokens() -> None:
    tokens = (np.random.default_rng(1).pareto(2.0, 64 * 8) * 1000).astype(np.int64) + 500
    loads = []
    for pass_ in range(5):
        dealt = deal(tokens, 64, seed=1, dataset=0, pass_=pass_)
        loads.append([int(tokens[units].sum()) for units in dealt])
    heaviest = int(tokens.max())
    for load in loads:
        assert max(load) - min(load) <= heaviest
    assert len({tuple(load) for load in loads}) == 5


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 50), max_size=200).map(lambda a: np.array(a, dtype=np.int64)), st.integers(1, 400))
def test_windows_are_bounded_and_even(pairs: NDArray[np.int64], window_pairs: int) -> None:
    cuts = cut_windows(pairs, window_pairs)
    assert cuts[0] == 0
    assert cuts[-1] == len(pairs)
    sizes = [int(pairs[a:b].sum()) for a, b in itertools.pairwise(cuts)]
    for size, units in zip(sizes, np.diff(cuts).tolist(), strict=True):
        assert units >= 1
        assert size <= window_pairs or units == 1
    if len(pairs) and int(pairs.max()) == 1:
        assert max(sizes) - min(sizes) < len(sizes)


def test_the_order_is_frozen() -> None:
    """A change here breaks the resuming of every run that exists: before a release alone."""
    digest = hashlib.sha256()
    ways: list[tuple[int, int, Literal["padded", "tokens"]]]
    ways = [(16, 64, "padded"), (1000, 2000, "padded"), (16, 64, "tokens")]
    for block, shard, budget in ways:
        section = StreamSection(
            micro_batches=3,
            source_tokens=256,
            target_tokens=300,
            budget=budget,
            max_rows=20,
            window_pairs=500,
            length_multiple=4,
        )
        number = np.arange(2000)
        lengths = np.stack([number * 7919 % 53 + 1, number * 104_729 % 59 + 1], axis=1).astype(np.uint16)
        plan = StreamPlan(lengths, even_table(lengths, block, shard), section, seed=12)
        digest.update(repr([epoch(plan, pass_) for pass_ in range(2)]).encode())
    assert digest.hexdigest() == "8e6ba1e8feddcb31e95bf8f582ec383259b4ad75dff70d9983870715adaa4726"
    assert permutation(10, 1, Purpose.PAIRS, 2, 3).tolist() == [0, 5, 8, 7, 6, 4, 9, 1, 2, 3]


@pytest.mark.parametrize("num_lanes", [2, 8])
@pytest.mark.parametrize("window_pairs", [100_000, 2000], ids=["one window", "several windows"])
def test_the_micro_batches_of_an_update_are_about_as_heavy(num_lanes: int, window_pairs: int) -> None:
    """All ranks wait for the heaviest."""
    section = StreamSection(
        micro_batches=num_lanes, source_tokens=512, target_tokens=512, length_multiple=1, window_pairs=window_pairs
    )
    plan = make_plan(12_000, section, seed=2)
    order = epoch(plan)
    lanes = [[len(m) * int((plan.lengths[m].astype(int) + 1).max(axis=0).sum()) for m in lane] for lane in order]
    weights = np.array([lane[: min(map(len, lanes))] for lane in lanes])
    waiting = (weights.max(axis=0) / weights.mean(axis=0)).mean() - 1
    shuffled = np.stack([np.random.default_rng(lane).permutation(row) for lane, row in enumerate(weights)])
    by_chance = (shuffled.max(axis=0) / shuffled.mean(axis=0)).mean() - 1
    assert waiting < by_chance / 2
    assert abs(np.corrcoef(np.arange(weights.shape[1]), weights[0])[0, 1]) < 0.2  # still in a random order


MEASURED = [
    # pairs, budget, most padding of both sides together
    (1000, 1024, 0.20),
    (20_000, 1024, 0.05),
    (20_000, 4096, 0.11),
    (100_000, 4096, 0.05),
]


@pytest.mark.parametrize(("pairs", "budget", "most"), MEASURED)
def test_padding_is_low_on_both_sides(pairs: int, budget: int, most: float) -> None:
    lengths = random_lengths(pairs, 4)
    plan = plan_window(lengths, _budget(budget), seed=1, place=(0, 0, 0, 0), before=0)
    padded, real = 0, int((lengths.astype(int) + 1).sum())
    for number in range(len(plan)):
        rows = lengths[plan.micro_batch(number)].astype(int) + 1
        padded += len(rows) * int(rows.max(axis=0).sum())
    assert 1 - real / padded < most, f"{1 - real / padded:.4f}"


@pytest.mark.parametrize("tokens", [1024, 4096, 16_384])
def test_true_tokens_fill_micro_batches(tokens: int) -> None:
    """Of the side that takes more, but for the window's last one."""
    lengths = random_lengths(100_000, 4)
    plan = plan_window(lengths, _budget(tokens, is_padded=False), seed=1, place=(0, 0, 0, 0), before=0)
    taken = [(lengths[plan.micro_batch(number)].astype(int) + 1).sum(axis=0).max() for number in range(len(plan))]
    assert max(taken) <= tokens
    assert np.mean(taken) / tokens > 0.98
    assert sum(len(plan.micro_batch(number)) for number in range(len(plan))) == len(lengths)


def _budget(tokens: int, **settings: bool) -> Budget:
    return Budget(source_tokens=tokens, target_tokens=tokens, max_rows=tokens, length_multiple=1, **settings)
