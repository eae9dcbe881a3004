"""What tests of the core have: tokenizers of made-up text, a trained run, the command line beside a pretender."""

import pytest

from data_pipeline.tokenizer import Tokenizer
from tests.launcher.conftest import workplace
from tests.trainer.conftest import place, trained
from tests.zeromt.made import make_tokenizer

__all__ = ["place", "trained", "workplace"]


@pytest.fixture(scope="session")
def joint() -> Tokenizer:
    return make_tokenizer()


@pytest.fixture(scope="session")
def separate() -> Tokenizer:
    return make_tokenizer(joint=False)
