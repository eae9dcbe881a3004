"""`python -m tests.kept`: makes the folder of this checkout's version."""

import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from data_pipeline.prepared.dataset import Dataset
from tests.conftest import REPO, environment, read_metrics, torchrun, zeromt
from tests.kept import keys
from tests.small import FILES

SETTINGS = (
    "name=kept", "prepare.tokenizer.vocab_size=120", "prepare.tokenizer.normalization=identity", "model.d_model=8",
    "model.feed_forward.d_ff=16", "model.dropout=0", "optimizer.eps=1e-3", "training.max_updates=4",
    "training.tensorboard=false", "evaluation.every_updates=4", "evaluation.max_pairs=4", "checkpoint.every_updates=4",
)  # fmt: skip
"""Small, and without dropout, whose noise may change: what is expected depends on the data and on what was saved."""
NOT_KEPT = (
    *("corpus", "small.yaml"),
    *(f"runs/kept/{name}" for name in ("logs", "eval", "launch.lock", "run.lock", "report.md", "report.svg")),
)
LAST = 6


def call(command: list[str], place: Path) -> None:
    """Run a command there."""
    subprocess.run(command, cwd=place, env=environment(), check=True)


def make(place: Path) -> None:
    """Prepare the dataset, train the run, and write what is expected of both, in a new folder."""
    shutil.copytree(FILES, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    call(zeromt("prepare", "small.yaml", *SETTINGS), place)
    call(torchrun(2, "-m", "trainer", "small.yaml", *SETTINGS), place)
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
