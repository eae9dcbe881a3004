"""A corpus that is read in spans and written in several shards."""

import pytest

from configs import CleaningSection, PrepareSection
from data_pipeline.preparation import corpus as corpora
from tests.data_pipeline.preparation.made import Corpus, many


@pytest.fixture
def in_spans(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> PrepareSection:
    """3,000 pairs in spans of 250 and some five shards, duplicates dropped."""
    monkeypatch.setattr(corpora, "SPAN_PAIRS", 1000)
    cleaning = CleaningSection(duplicates="drop")
    return corpus(many(3000), pairs_per_block=16, blocks_per_shard=40, cleaning=cleaning)
