import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_pipeline.stream.batch import Ragged, collate
from data_pipeline.tokenizer import BOS_ID, EOS_ID, PAD_ID

Rows = list[list[int]]
rows = st.lists(st.lists(st.integers(3, 60_000), min_size=1, max_size=12), min_size=1, max_size=8)


def _arrays(rows: Rows) -> Ragged:
    ragged = Ragged.of(rows)
    assert [ragged[number].tolist() for number in range(len(ragged))] == rows
    return ragged


@given(rows, st.sampled_from([1, 4, 8]))
def test_padding_adds_and_loses_nothing(sources: Rows, multiple: int) -> None:
    targets = [row[::-1] for row in sources]
    batch = collate(0, np.arange(len(sources)), _arrays(sources), _arrays(targets), multiple)
    assert batch.source.dtype == batch.target_input.dtype == batch.pair_ids.dtype == np.int64
    assert (batch.num_pairs, batch.num_padded_source) == (len(sources), batch.source.size)
    assert batch.num_source_tokens == sum(map(len, sources)) + len(sources)
    for array in (batch.source, batch.target_input, batch.target_output):
        assert array.shape[1] % multiple == 0
        assert array.shape[1] < max(map(len, sources)) + 1 + multiple
    for number, row in enumerate(targets):
        padding = [PAD_ID] * (batch.target_output.shape[1] - len(row) - 1)
        assert batch.source[number].tolist() == [*sources[number], EOS_ID, *padding]
        assert batch.target_output[number].tolist() == [*row, EOS_ID, *padding]
        assert batch.target_input[number].tolist() == [BOS_ID, *row, *padding]
