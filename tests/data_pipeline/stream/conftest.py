"""A dataset whose tokenizer spells every character, and every modifier."""

import dataclasses
from typing import Any

import pytest

from configs import CorpusFiles, PrepareSection
from configs.components import Modifier, kinds, make
from data_pipeline.preparation import prepare
from data_pipeline.prepared.dataset import Dataset

TEXT_KINDS = ["merge", "upper_case", "typos", "noise", "prefix"]


@pytest.fixture(scope="session")
def spelling(small_section: PrepareSection, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """1,000 pairs, BPE with byte fallback and two tags; not to be written to."""
    tokenizer = dataclasses.replace(small_section.tokenizer, byte_fallback=True, vocab_size=800, tags=[">>bt<<"])
    output = tmp_path_factory.mktemp("prepared") / "spelling"
    train = CorpusFiles(source=["valid.en.gz"], target=["valid.fr.gz"])
    prepare.run(dataclasses.replace(small_section, output=str(output), train=train, tokenizer=tokenizer))
    return Dataset.load(output)


@pytest.fixture(scope="session")
def everything() -> list[Modifier]:
    """Every modifier of text, each for some pairs, and BPE-dropout for all."""
    assert {*TEXT_KINDS, "bpe_dropout", "unigram_sampling"} <= set(kinds("modifier"))
    fields: dict[str, dict[str, Any]] = {"prefix": {"text": ">>bt<<"}}
    texts = [make("modifier", kind, **{"probability": 0.1, **fields.get(kind, {})}) for kind in TEXT_KINDS]
    return [*texts, make("modifier", "bpe_dropout")]
