"""Small files that expand to much more: what reading them takes, in processes of their own."""

import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from configs import UserError
from data_pipeline.preparation.lines import byte_lines
from tests.waiting import PATIENCE

MEBIBYTES = 384
PACKERS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.compressobj(1, wbits=31),
    ".zst": lambda: zstandard.ZstdCompressor(level=19).compressobj(),
}

COUNT = "from data_pipeline.preparation.lines import byte_lines; print(sum(1 for _ in byte_lines(path)))"
HOLD = """
from configs import CorpusFiles
from data_pipeline.preparation.corpus import read_whole
print(len(read_whole(CorpusFiles(source=[str(path)], target=[str(path)]), ".")[0]))
"""
GROWTH = """
import importlib, sys
from pathlib import Path
from configs import UserError
peak = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])  # rusage has the parent's, too
code, path = sys.argv[1], Path(sys.argv[2])
for word in code.split():
    if "." in word and word.partition(".")[0] in ("data_pipeline", "trainer", "zeromt"):
        importlib.import_module(word)
before = peak()
try:
    exec(code)
except UserError as error:
    print(error)
print((peak() - before) >> 10)
"""


def packed(path: Path, block: bytes) -> Path:
    packer = PACKERS[path.suffix]()
    with path.open("wb") as file:
        for _ in range(MEBIBYTES):
            file.write(packer.compress(block))
        file.write(packer.flush())
    assert path.stat().st_size < 3 << 20
    return path


def grown(code: str, path: Path) -> tuple[str, int]:
    """What it printed, and by how many MiB it made the process grow."""
    command = [sys.executable, "-c", GROWTH, code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    said, mebibytes = done.stdout.splitlines()
    return said, int(mebibytes)


@pytest.mark.parametrize("suffix", PACKERS)
def test_one_endless_line(tmp_path: Path, suffix: str) -> None:
    said, mebibytes = grown(COUNT, packed(tmp_path / f"text{suffix}", b"a" * (1 << 20)))
    assert "more than 16777216 bytes" in said
    assert mebibytes < 256


def test_a_set_of_endless_lines(tmp_path: Path) -> None:
    said, mebibytes = grown(HOLD, packed(tmp_path / "short.zst", b"a\n" * (1 << 19)))
    assert "has more than 2,097,152 lines or 268,435,456 characters, which are held in memory" in said
    assert mebibytes < 512


STREAM = """
from configs import CorpusFiles
from configs.components import make
from data_pipeline.preparation.corpus import corpus_units
[unit] = corpus_units(CorpusFiles(files=[str(path)], reader=make("reader", path.suffix[1:])), ".")
print(sum(span.pairs for span, _ in unit.stream(0, 0, 65536)))
"""


@pytest.mark.parametrize(("has_dictionary", "said"), [(True, "300"), (False, "expands to over 100 times its size")])
def test_a_long_text_that_parquet_repeats(tmp_path: Path, has_dictionary: bool, said: str) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"source": ["x" * (1 << 20)] * 300, "target": ["y"] * 300})
    path = tmp_path / "a.table"
    parquet.write_table(table, path, compression="zstd", use_dictionary=has_dictionary, data_page_size=1 << 30)
    assert path.stat().st_size < 20_000
    output, mebibytes = grown(STREAM, path)
    assert said in output
    assert mebibytes < 500


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<tmx><body><tu><tuv lang='en'><seg>" + "a" * (5 << 20), "has no end of a unit in 4 MiB"),
        (
            "<!DOCTYPE tmx [<!ENTITY a0 'aaaaaaaaaa'>"
            + "".join(f"<!ENTITY a{n + 1} '{f'&a{n};' * 10}'>" for n in range(9))
            + "]><tmx><body><tu><tuv lang='en'><seg>&a9;</seg></tuv></tu></body></tmx>",
            "has a DTD within",
        ),
        ("<tmx><body><tu>" + "<a/>" * 1_000_000 + "</tu></body></tmx>", "has no unit with und and und"),
    ],
    ids=["endless", "entities", "elements"],
)
def test_small_files_of_tmx(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.tmx").write_bytes(zstandard.ZstdCompressor().compress(text.encode()))
    assert (tmp_path / "a.tmx").stat().st_size < 20_000
    output, mebibytes = grown(STREAM, tmp_path / "a.tmx")
    assert said in output
    assert mebibytes < 500


def test_a_window_beyond_the_bound(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=29, enable_ldm=True)
    frame = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    (tmp_path / "text.zst").write_bytes(frame.compress(b"a\n") + frame.flush())
    with pytest.raises(UserError, match=r"text\.zst: needs a window of more than 256 MiB .* again: `zstd"):
        next(byte_lines(tmp_path / "text.zst"))
