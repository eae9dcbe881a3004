"""One small prepared dataset, shared, and tools to make corpora and to break datasets."""

import dataclasses
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs import CorpusFiles, PrepareSection, TokenizerSection
from data_pipeline.preparation import prepare
from data_pipeline.prepared.dataset import Dataset

BUNDLED = Path(__file__).parents[2] / "data" / "tatoeba-en-fr"

Member = tuple[str, bytes, bytes]
"""Name, tar type and content."""


@pytest.fixture(scope="session")
def small_section(tmp_path_factory: pytest.TempPathFactory) -> PrepareSection:
    """1,000 pairs in 32 blocks and 4 shards."""
    return PrepareSection(
        output=str(tmp_path_factory.mktemp("prepared") / "small"),
        root=str(BUNDLED),
        target_language="fr",
        train=CorpusFiles(source=["valid.en.gz"], target=["valid.fr.gz"]),
        valid=CorpusFiles(source=["test.en.gz"], target=["test.fr.gz"]),
        tokenizer=TokenizerSection(vocab_size=500, threads=1),
        max_pieces=128,
        pairs_per_block=32,
        blocks_per_shard=8,
        workers=1,
    )


@pytest.fixture(scope="session")
def small(small_section: PrepareSection) -> Dataset:
    """The dataset of `small_section`; not to be written to."""
    prepare.run(small_section)
    return Dataset.load(Path(small_section.output))


@pytest.fixture
def copied(small: Dataset, tmp_path: Path) -> Path:
    """A copy of the small dataset, to be broken."""
    return Path(shutil.copytree(small.folder, tmp_path / "copied"))


@pytest.fixture
def corpus(tmp_path: Path) -> Callable[..., PrepareSection]:
    """Makes the section of a corpus of given pairs."""

    def make(pairs: Sequence[tuple[str, str]], **settings: Any) -> PrepareSection:
        (tmp_path / "train.en").write_text("".join(f"{s}\n" for s, _ in pairs), encoding="utf-8", newline="")
        (tmp_path / "train.fr").write_text("".join(f"{t}\n" for _, t in pairs), encoding="utf-8", newline="")
        default = PrepareSection(
            output=str(tmp_path / "out"),
            root=str(tmp_path),
            train=CorpusFiles(source=["train.en"], target=["train.fr"]),
            tokenizer=TokenizerSection(vocab_size=64, threads=1),
            workers=1,
        )
        return dataclasses.replace(default, **settings)

    return make


def _rewrite_index(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "index.json"
    tree = json.loads(path.read_text(encoding="utf-8"))
    change(tree)
    path.write_text(json.dumps(tree), encoding="utf-8")


@pytest.fixture
def rewrite_index() -> Callable[[Path, Callable[[dict[str, Any]], None]], None]:
    """Changes the index of a dataset."""
    return _rewrite_index


def _first_block(members: Sequence[Member]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, len(content)
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname, info.size = "/etc/passwd", 0
            tar.addfile(info, io.BytesIO(content))
        end = tar.offset
    return buffer.getvalue()[:end]


@pytest.fixture
def forge(copied: Path) -> Callable[[Sequence[Member] | bytes], Path]:
    """Puts other members into the first block and makes every hash and size agree, as a hostile dataset would."""

    def replace(members: Sequence[Member] | bytes) -> Path:
        block = members if isinstance(members, bytes) else _first_block(members)
        shard = copied / "train-000000.tar"
        blocks = np.load(copied / "blocks.npy")
        data = block + shard.read_bytes()[int(blocks["bytes"][0]) :]
        shard.write_bytes(data)
        later = (blocks["shard"] == 0) & (blocks["offset"] > 0)
        blocks["offset"][later] = blocks["offset"][later] - blocks["bytes"][0] + np.uint64(len(block))
        blocks["bytes"][0] = len(block)
        blocks["sha256"][0] = np.frombuffer(hashlib.sha256(block).digest(), dtype=np.uint8)
        np.save(copied / "blocks.npy", blocks)
        table = (copied / "blocks.npy").read_bytes()

        def change(tree: dict[str, Any]) -> None:
            tree["shards"][0].update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
            tree["block_table"].update(bytes=len(table), sha256=hashlib.sha256(table).hexdigest())

        _rewrite_index(copied, change)
        return copied

    return replace


@pytest.fixture
def first_members(small: Dataset) -> dict[str, bytes]:
    """The members of the first block, by name."""
    with tarfile.open(small.folder / "train-000000.tar") as tar:
        members = [m for m in tar.getmembers() if m.name.startswith("000000-000000.")]
        return {m.name: file.read() for m in members if (file := tar.extractfile(m))}


Ids = list[list[int] | None]
