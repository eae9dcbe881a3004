"""What is scored of a run's datasets, and what is said of it before anything is trained."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from configs import CorpusFiles, HeldOutSection, PrepareSection, RunConfig, TokenizerSection, load_run
from data_pipeline.preparation import prepare
from data_pipeline.preparation.readers.lines import Tsv
from data_pipeline.prepared.dataset import Dataset
from trainer.evaluation.sets import held_out_sets

THAI = "สวัสดีครับผมชื่อสมชาย"


@pytest.fixture
def thai(tmp_path: Path) -> RunConfig:
    """A run from English to Thai."""
    (tmp_path / "text.tsv").write_text(f"a cat\t{THAI}\n" * 9 + f"a dog\t{THAI}\n")
    files = CorpusFiles(files=[str(tmp_path / "text.tsv")], reader=Tsv())
    tokenizer = TokenizerSection(vocab_size=36, threads=1)
    output = str(tmp_path / "data")
    prepare.run(
        PrepareSection(
            output=output, source_language="en", target_language="tha", train=files, valid=files, tokenizer=tokenizer
        )
    )
    return load_run("debug", [f"stream.datasets=[{{path: '{output}'}}]", f"output={tmp_path}"])


def world_of(rank: int) -> Any:
    """A rank of as many as there are, each of which reads for itself."""
    return SimpleNamespace(
        rank=rank, size=1, is_main=rank == 0, device=torch.device("cpu"), on_main=lambda look, *_: look()
    )


def test_sets_for_tests_alone_select_nothing(thai: RunConfig, tmp_path: Path) -> None:
    """The prepared validation set stays."""
    (tmp_path / "test").write_text("a\n")
    section = HeldOutSection(name="t", role="test", source=str(tmp_path / "test"), references=[str(tmp_path / "test")])
    config = dataclasses.replace(thai, evaluation=dataclasses.replace(thai.evaluation, sets=[section]))
    sets = held_out_sets(config, [Dataset.load(thai.datasets[0].path)], world_of(0))
    assert [(one.name, one.role) for one in sets] == [("data", "validation"), ("t", "test")]
    assert "tok:char" in sets[0].scorer.signatures["bleu"], "Thai has no spaces between words"
