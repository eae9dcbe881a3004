"""Two runs with translations that were made up, so that nothing has to be trained."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from configs import load_saved
from tests.conftest import bundled
from tests.small import small_runs
from trainer.evaluation.sets import SetText, read_set
from trainer.inference.loading import find_checkpoint
from trainer.runs.layout import CONFIG
from zeromt.evaluating.translation_cache import Work, keep


@dataclass(kw_only=True, frozen=True)
class Planted:
    """Two runs, and a set that both have translated."""

    root: Path
    runs: tuple[str, str]
    source: Path
    references: tuple[Path, Path]

    @property
    def option(self) -> str:
        """For `--set`."""
        return f"{{name: planted, source: {self.source}, references: [{self.references[0]}]}}"


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    root = tmp_path_factory.mktemp("planted") / "kept"
    shutil.copytree(small_runs(), root)
    sources, references = (bundled(language, slice(60)).decode().splitlines() for language in ("en", "fr"))
    files = (root / "planted.en", root / "planted.fr", root / "second.fr")
    second = [line[::-1] if number % 3 else f"{line} aussi" for number, line in enumerate(references)]
    for path, lines in zip(files, (sources, references, second), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    runs = ("runs/small", "runs/mixture")
    plant(root / runs[0], files[0], files[1], [_worse(line, number % 4) for number, line in enumerate(references)])
    plant(root / runs[1], files[0], files[1], [_worse(line, -~number % 3) for number, line in enumerate(references)])
    return Planted(root=root, runs=runs, source=files[0], references=(files[1], files[2]))


def plant(run: Path, source: Path, reference: Path, lines: Sequence[str]) -> None:
    """Keep translations as if the run had made them."""
    checkpoint = find_checkpoint(run)
    config = load_saved(checkpoint.folder / CONFIG, any_version=True)
    sources, references = read_set(str(source), [str(reference)], place="source")
    text = SetText(name="planted", languages=("en", "fr"), sources=sources, references=references)
    weights = checkpoint.weights_kind(raw=False)
    work = Work(text=text, search=config.evaluation.search, tags=None, weights=weights, precision="fp32")
    assert keep(checkpoint, work, lines) is not None


def _worse(line: str, how: int) -> str:
    """A translation that is right, or has lost, swapped or repeated a word."""
    words = line.split(" ")
    changed = {0: words, 1: words[1:] or words, 2: [*words[1:], words[0]], 3: [*words, words[-1]]}
    return " ".join(changed[how])
