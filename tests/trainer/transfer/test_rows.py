"""A parent's weights in another vocabulary: rows against a plain loop, with every way of tying."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from configs import PrepareSection, RunConfig
from data_pipeline.tokenizer import EOS_ID, Tokenizer, match
from tests.model.flat import section_of
from tests.zeromt.made import SMALL, TAG, make_model, make_tokenizer
from trainer.checkpoint.model_files import build_model
from trainer.checkpoint.state import TrainerState
from trainer.checkpoint.weights_only import write_run
from trainer.transfer import ancestry_of

ALONE: Any = SimpleNamespace(
    rank=0, size=1, is_main=True, on_main=lambda look, *_: look(), gather=lambda value, *_: [value]
)
"""A rank that is alone, and meets nobody."""
TYING = [("three-way", True, True), ("decoder", True, False), ("decoder", False, True), ("none", False, False)]
"""How matrices are tied, and whether the parent's vocabulary and the new one are joint."""
TAGGED: Any = {"kind": "unigram", "vocab_size": 42, "tags": [">>deu<<", ">>fr<<"]}


def parent_run(folder: Path, tokenizer: Tokenizer, model: Any) -> RunConfig:
    """A run of weights alone, as imports make them; the configuration of one with the same model in the same folder."""
    config = dataclasses.replace(
        RunConfig(), model=model.section, prepare=PrepareSection(max_pieces=16), output=str(folder), name="tuned"
    )
    parameters = dict(model.named_parameters())
    (folder / "parent").mkdir()
    write_run(
        folder / "parent",
        folder / "parent",
        config,
        tokenizer,
        tensors=((name, p.detach()) for name, p in parameters.items()),
        state=TrainerState(),
        data_fingerprints=[],
        origin={"command": "import"},
    )
    return config


@pytest.mark.parametrize(("tied", "was_joint", "is_joint"), TYING)
@pytest.mark.parametrize("bias", [False, True])
def test_every_way_of_tying(tmp_path: Path, tied: str, was_joint: bool, is_joint: bool, bias: bool) -> None:
    old, new = make_tokenizer(joint=was_joint), make_tokenizer(joint=is_joint, **TAGGED)
    section = section_of(**SMALL, tied_embeddings=tied, output_bias=bias)
    parent = make_model(section, old)
    config = parent_run(tmp_path, old, parent)
    ancestry = ancestry_of(config, f"{tmp_path}/parent", None, ALONE)
    child = build_model(section, new, seed=7)
    before = {name: p.detach().clone() for name, p in child.named_parameters()}
    ancestry.fill(child, new)
    theirs, ours = dict(parent.named_parameters()), dict(child.named_parameters())
    num_matrices = 0
    for name, parameter in ours.items():
        if parameter.shape == theirs[name].shape and "tokens" not in name and not name.startswith("output."):
            assert parameter.equal(theirs[name]), name
            continue
        num_matrices += 1
        rows = match(old, new, "source" if name.startswith("source") else "target")
        for row in range(len(parameter)):
            if row in rows.kept:
                assert parameter[row].equal(theirs[name][rows.kept[row]])
            elif row in rows.cut:
                expected = torch.stack([theirs[name][n] for n in rows.cut[row]]).mean(0)
                torch.testing.assert_close(parameter[row], expected)
            else:
                assert parameter[row].equal(before[name][row])
        assert parameter[EOS_ID].equal(theirs[name][EOS_ID])
    assert num_matrices == {"three-way": 1, "decoder": 2, "none": 3}[tied] + bias
    if was_joint:
        fra = match(old, new, "source").kept[new.tag_id(">>fr<<")]
        assert fra == old.tag_id(TAG)
    assert ancestry.parent is not None
    assert list(ancestry.parent.rows) == (["both"] if was_joint and is_joint else ["source", "target"])
    assert sum(ancestry.parent.rows[side]["kept"] for side in ancestry.parent.rows) > 4


@pytest.mark.parametrize("frozen", [["source_embedding.tokens.weight"], []])
def test_new_rows_that_stay_random_are_warned_of(
    frozen: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = make_tokenizer(), make_tokenizer(**TAGGED)
    section = section_of(**SMALL, tied_embeddings="three-way")
    ancestry = ancestry_of(parent_run(tmp_path, old, make_model(section, old)), f"{tmp_path}/parent", None, ALONE)
    child = build_model(section, new, seed=7)
    ancestry.fill(child, new)
    sizes = {name: p.numel() for name, p in child.named_parameters()}
    trained = [name for name in sizes if name not in frozen]
    engine: Any = SimpleNamespace(
        parameter_sizes=lambda: sizes, trained=trained, moments={}, load_moments=lambda *_, **__: None
    )
    ancestry.begin(engine, is_main=True)
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line.partition(" is not")[0] for line in warned] == [f"training.freeze: {name}" for name in frozen]
