"""`python -m tests.kept`: makes the folder of this checkout's version."""

import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from data_pipeline.prepared.dataset import Dataset
from tests.conftest import REPO, bundled, environment, read_metrics, torchrun, zeromt
from tests.kept import keys

CONFIG = """\
name: kept
prepare:
  output: dataset
  source_language: en
  target_language: fr
  train: {source: [a.en], target: [a.fr]}
  valid: {source: [v.en], target: [v.fr]}
  tokenizer: {vocab_size: 120, character_coverage: 0.98, normalization: identity}
  max_pieces: 64
  pairs_per_block: 50
stream: {micro_batches: 2, source_tokens: 512, target_tokens: 512, window_pairs: 64}
model: {d_model: 8, encoder_layers: 2, decoder_layers: 2, max_positions: 128, dropout: 0.0, attention: {num_heads: 2},
        feed_forward: {d_ff: 16}}
optimizer: {lr: 1.0e-2, eps: 1.0e-3}
schedule: {kind: inverse_sqrt, warmup_updates: 4}
engine: {zero_stage: 1, precision: fp32}
training: {max_updates: 4, log_every: 1, ema_decay: 0.9, tensorboard: false}
evaluation: {every_updates: 4, max_pairs: 4, search: {max_length_extra: 8}}
checkpoint: {every_updates: 4}
"""
"""Without dropout, whose noise may change: what is expected depends on the data and on what was saved."""
NOT_KEPT = (
    *("a.en", "a.fr", "v.en", "v.fr", "kept.yaml"),
    *(f"runs/kept/{name}" for name in ("logs", "eval", "launch.lock", "run.lock", "report.md", "report.svg")),
)
LAST = 6


def call(command: list[str], place: Path) -> None:
    """Run a command there."""
    subprocess.run(command, cwd=place, env=environment(), check=True)


def make(place: Path) -> None:
    """Prepare the dataset, train the run, and write what is expected of both, in a new folder."""
    for name, lines in {"a": slice(200), "v": slice(200, 208)}.items():
        for language in ("en", "fr"):
            (place / f"{name}.{language}").write_bytes(bundled(language, lines))
    (place / "kept.yaml").write_text(CONFIG, encoding="utf-8")
    call(zeromt("prepare", "kept.yaml"), place)
    call(torchrun(2, "-m", "trainer", "kept.yaml"), place)
    with tempfile.TemporaryDirectory() as other:
        copy = shutil.copytree(place, Path(other) / "copy")
        call(torchrun(2, "-m", "trainer", "runs/kept/config.yaml", f"training.max_updates={LAST}"), copy)
        expected = {
            "losses": {line["step"]: line["loss"] for line in read_metrics(copy / "runs/kept")},
            "nll": read_metrics(copy / "runs/kept", "evaluation")[-1]["nll"],
            "fingerprint": Dataset.load(place / "dataset").fingerprint,
        }
    for path in (place / name for name in NOT_KEPT):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    (place / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")
    (place / "keys.txt").write_text("".join(f"{key}\n" for key in sorted(set(keys()))), encoding="utf-8")


def main() -> None:
    """Make the folder, which must not exist."""
    version = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    folder = Path(__file__).parent / version
    if folder.exists():
        sys.exit(f"{folder} is there; what a release made is kept as it is")
    with tempfile.TemporaryDirectory() as place:
        make(Path(place))
        shutil.copytree(place, folder)
    print(f"{folder}: {sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()):,} bytes")


if __name__ == "__main__":
    main()
