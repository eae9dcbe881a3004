"""A new tag in a run that exists, and data that another tokenizer prepared."""

from pathlib import Path

import pytest

from data_pipeline.prepared.dataset import Dataset
from tests.conftest import Refused, bundled
from tests.forked import Forked
from trainer.checkpoint.format import read_whole

BT = ">>bt<<"


@pytest.fixture(scope="module")
def base(forked: Forked, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, a dataset whose tokenizer has a tag that no line has, and a run of 4 updates."""
    root = tmp_path_factory.mktemp("base")
    for name, lines in (("a", slice(0, 200)), ("b", slice(200, 300))):
        for language in ("en", "fr"):
            (root / f"{name}.{language}").write_bytes(bundled(language, lines))
    (root / "run.yaml").write_text(
        """
name: base
prepare:
  target_language: fr
  output: data/a
  train: {source: [a.en], target: [a.fr]}
  valid: {source: [b.en], target: [b.fr]}
  tokenizer: {vocab_size: 300, tags: [">>bt<<"]}
  max_pieces: 128
stream: {source_tokens: 512, target_tokens: 512}
model: {d_model: 16, encoder_layers: 1, decoder_layers: 1, max_positions: 256, attention: {num_heads: 2},
        feed_forward: {d_ff: 32}}
schedule: {warmup_updates: 2}
engine: {precision: fp32}
training: {max_updates: 4, log_every: 1, tensorboard: false}
evaluation: {every_updates: 2, max_pairs: 2}
checkpoint: {every_updates: 2}
"""
    )
    for words in (("prepare", "run.yaml"), ("train", "run.yaml")):
        done = forked.zeromt(*words, cwd=root)
        assert done.code == 0, done.err
    return root


BACK = ["prepare.train.source=[b.en]", "prepare.train.target=[b.fr]", "prepare.output=data/bt"]


def test_a_run_takes_data_with_a_tag(base: Path, forked: Forked) -> None:
    """Old data and new ones in one line, in place and by --from."""
    tagged = f"prepare.target_tag='{BT}'"
    done = forked.zeromt("prepare", "run.yaml", *BACK, tagged, "--tokenizer-of", "runs/base", cwd=base)
    assert done.code == 0, done.err
    new = Dataset.load(base / "data/bt").tokenizer
    mixture = "stream.datasets=[{path: data/a, weight: 3}, {path: data/bt, weight: 1}]"
    refused = forked.zeromt("train", "run.yaml", mixture, cwd=base)
    assert refused.code == 2, "the data are others, which --reset says"
    ways = {"tuned": ["--from", "runs/base"], "again": ["--reset", "data,optimizer"]}
    mean = forked.zeromt("average", "runs/base", "--last", "1", "-o", "runs/again", cwd=base)
    assert mean.code == 0, mean.err
    for name, how in ways.items():
        done = forked.zeromt("train", "run.yaml", mixture, *how, f"name={name}", "training.max_updates=2", cwd=base)
        assert done.code == 0, done.err
    tuned, again = (
        read_whole(base / "runs" / name / "checkpoints" / step)
        for name, step in (("tuned", "step-00000002"), ("again", "step-00000006"))
    )
    for checkpoint in (tuned, again):
        assert checkpoint.manifest["fingerprints"]["tokenizer"] == new.fingerprint
    ours, theirs = tuned.stored("model"), again.stored("model")
    assert all(ours[name].equal(theirs[name]) for name in theirs)


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (
            ["runs/base", "prepare.max_pieces=100"],
            "max_pieces was 128 and is 100",
        ),
        (["runs/none"], "--tokenizer-of: no such folder"),
        (["runs/base@3"], "has no checkpoint of step 3; it has 2, 4"),
        (["."], "--tokenizer-of: "),
    ],
)
def test_refused(base: Path, refused: Refused, of: list[str], said: str) -> None:
    assert said in refused("prepare", "run.yaml", "--tokenizer-of", *of, cwd=base)
