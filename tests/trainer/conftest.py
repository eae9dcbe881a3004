"""A run that was kept, to go on with; and one that has learnt 100 pairs by heart, so that its scores are far from 0."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import write_score
from tests.conftest import Corpus, bundled
from tests.forked import Forked
from tests.once import once
from tests.small import small_runs

NUM_PAIRS = 100
HEART = """
name: heart
output: {root}/runs
prepare:
  output: {root}/prepared
  root: {root}
  target_language: fr
  train: {{source: [text.en], target: [text.fr]}}
  valid: {{source: [text.en], target: [text.fr]}}
  tokenizer: {{vocab_size: 400}}
  max_pieces: 128
  pairs_per_block: 16
stream: {{micro_batches: 2, source_tokens: 512, target_tokens: 512}}
model:
  {{d_model: 64, encoder_layers: 1, decoder_layers: 1, attention: {{num_heads: 2}}, feed_forward: {{d_ff: 128}},
   max_positions: 256, dropout: 0.0}}
loss: {{label_smoothing: 0.0}}
optimizer: {{lr: 5.0e-3}}
schedule: {{warmup_updates: 20, kind: linear}}
engine: {{zero_stage: 2, precision: fp32}}
training: {{max_updates: 300, log_every: 50}}
evaluation: {{every_updates: 150}}
checkpoint: {{every_updates: 150}}
"""


@dataclass(kw_only=True, frozen=True)
class TrainedRun:
    folder: Path
    config: Path
    source: Path
    reference: Path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a dataset, `small.yaml`, and `runs/small`, which has finished at step 10."""
    return Path(shutil.copytree(small_runs(), tmp_path / "place"))


@pytest.fixture(scope="session")
def trained(forked: Forked) -> TrainedRun:
    """Trained on two ranks under ZeRO-2; not to be written to."""

    def train(root: Path) -> None:
        for language in ("en", "fr"):
            (root / f"text.{language}").write_bytes(bundled(language, slice(NUM_PAIRS)))
        config = root / "heart.yaml"
        config.write_text(HEART.format(root=root))
        for done in (forked.zeromt("prepare", str(config), cwd=root), forked.trainer(2, str(config), cwd=root)):
            assert done.code == 0, done.err

    root = once("trained", train)
    return TrainedRun(
        folder=root / "runs" / "heart",
        config=root / "heart.yaml",
        source=root / "text.en",
        reference=root / "text.fr",
    )


@pytest.fixture(scope="session")
def weighted(corpus_en_fr: Corpus) -> Path:
    """A, B and C: the corpus three times, A with the scores qe, half (0 or 1), few (mostly 0), holes, log and long."""

    def make(folder: Path) -> None:
        for name in "ABC":
            shutil.copytree(corpus_en_fr.folder, folder / name)
        dataset, random = Dataset.load(folder / "A"), np.random.default_rng(1)
        pairs = dataset.num_pairs
        qe, half, few = random.random(pairs) * 3, random.integers(0, 2, pairs), random.random(pairs) < 0.06
        qe[random.random(pairs) < 0.3] = 0
        scores = {
            "qe": qe,
            "half": half,
            "few": few,
            "holes": np.where(np.arange(pairs) == 17, np.nan, qe),
            "log": qe - 1.5,
            "none": np.zeros(pairs),
            "long": dataset.lengths[:].max(axis=1) >= 40,
        }
        for name, values in scores.items():
            write_score(folder / "A", name, {"kind": "test"}, pairs, [values])

    return once("weighted", make)
