"""Tokenizers of made-up text."""

import pytest

from data_pipeline.tokenizer import Tokenizer
from tests.zeromt.exporting.made import make_tokenizer


@pytest.fixture(scope="session")
def joint() -> Tokenizer:
    return make_tokenizer()


@pytest.fixture(scope="session")
def separate() -> Tokenizer:
    return make_tokenizer(joint=False)
