"""The folder that a call is made in: real inputs, and every kind of odd place beside them."""

import gzip
import shutil
import socket
from hashlib import sha256
from pathlib import Path

from tests.fuzz.forgery import SOLID_BYTES
from tests.small import FILES, small_runs

RUN, CHECKPOINT, DATASET, CONFIG = "runs/small", "runs/small/checkpoints/step-00000010", "dataset", "small.yaml"
PIPELINE = "output: out\ninputs: {text: file}\nsteps: {sorted: {run: '/usr/bin/sort {text}', stdout: '{output}'}}\n"
TEXTS = ("corpus/in.en", "corpus/v.en", "corpus/v.fr")

ODD = (
    "", ".", "..", "~", "~nobody/x", "-", "--", "-x", "*", "$HOME", "a b", "caf\xe9", "caf\udce9", "\u2028",
    "new\nline", "\U0001f600",
    "missing", "missing/deeper", "x" * 300, "/".join(["y" * 200] * 25), "loop", "loop/x", "dangling", "closed",
    "closed/file",
    "read-only", "read-only/new", "read-only/file", "unreadable", "fixed", "socket", "empty", "binary", "latin-1",
    "utf-16",
    "cut.gz", "text.gz", "text.zst", "lone-cr", "long-line", "blank", "file/x", "folder", "link-to-run",
    "link-to-text",
    "/dev/null", "/proc/self/mem", "/proc/version", "/dev/fd/99", "http://127.0.0.1:9/x",
    "s3://none/x", "file:///none",
    "://", "memory://x", "runs", "runs/small/checkpoints", "runs/small/metrics.jsonl", "runs/broken", "runs/bare",
    "runs/garbled",
    "dataset-broken", "dataset-garbled", "hf-empty", "hf-garbled", "hf-marian", "garbled.yaml", "bomb.yaml",
    "list.yaml",
    "runs/small/checkpoints/step-00000010/model-00000-of-00001.safetensors", "dataset/tokenizer.model",
)  # fmt: skip
"""What may stand where a name of a file or folder is wanted."""
LINKS = {"loop": "loop", "dangling": "nowhere", "link-to-run": RUN, "link-to-text": TEXTS[0]}
OUTPUTS = (
    "out/new",
    "out/new.gz",
    "out/old.txt",
    "missing/x",
    "read-only/new",
    "fixed",
    "folder",
    "/dev/full",
    "x" * 300,
    "loop",
)


def build(folder: Path) -> None:
    """Fill an empty folder."""
    for name in ("corpus", "dataset", "runs/small"):
        shutil.copytree(small_runs() / name, folder / name)
    shutil.copy(FILES / "small.yaml", folder)
    for name in (
        "out",
        "home",
        "folder/deeper",
        "hf-empty",
        "hf-garbled",
        "hf-marian",
        "runs/bare",
        "runs/garbled/checkpoints",
    ):
        (folder / name).mkdir(parents=True)
    _files(folder)
    _broken(folder)
    _links(folder)
    _closed(folder)


def _files(folder: Path) -> None:
    text = b"A dog runs.\nTwo men sit.\n"
    for name, content in {
        "empty": b"", "file": text, "blank": b"\n\n \n\n",
        "binary": bytes(range(256)) * 8, "latin-1": "caf\xe9\n".encode("latin-1"),
        "utf-16": "A dog.\n".encode("utf-16"), "lone-cr": b"one\rtwo\r", "long-line": b"word " * 4000 + b"\n",
        "text.gz": gzip.compress(text),
        "cut.gz": gzip.compress(text * 40)[:-20], "text.zst": text, "out/old.txt": b"old\n",
        "garbled.yaml": b"a: [1\n\tb: }", "bomb.yaml": b"a: &a [x]\nb: &b [*a, *a]\nseed: *b\n",
        "list.yaml": b"- 1\n- 2\n", "pipeline.yaml": PIPELINE.encode(),
        "hf-garbled/config.json": b"[1, 2", "hf-marian/config.json": b'{"model_type": "marian", "d_model": "x"}',
        "runs/bare/config.yaml": b"name: bare\n", "runs/garbled/config.yaml": b"\x00\xff",
        "runs/garbled/status.json": b"[]",
        "runs/garbled/ledger.json": b'{"seconds": 3}',
        "runs/garbled/metrics.jsonl": b'{"kind": 1}\n[]\nnull\n{"kind": "train"}\n',
    }.items():  # fmt: skip
        (folder / name).write_bytes(content)


def _broken(folder: Path) -> None:
    shutil.copytree(folder / "runs/small", folder / "runs/broken")
    for step in (5, 10):
        path = folder / f"runs/broken/checkpoints/step-{step:08d}/model-00000-of-00001.safetensors"
        path.write_bytes(path.read_bytes()[:100])
    shutil.copytree(folder / "dataset", folder / "dataset-broken")
    (folder / "dataset-broken/train-000000.tar").write_bytes(b"no tar")
    (folder / "dataset-garbled").mkdir()
    (folder / "dataset-garbled/index.json").write_bytes(b'{"format": [], "files": 1}')


def _links(folder: Path) -> None:
    for name, target in LINKS.items():
        (folder / name).symlink_to(target)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "socket"))


def _closed(folder: Path) -> None:
    for name, mode in (("closed", 0o000), ("read-only", 0o555)):
        (folder / name).mkdir()
        (folder / name / "file").write_text("line\n")
        (folder / name).chmod(mode)
    for name, mode in (("unreadable", 0o000), ("fixed", 0o444)):
        (folder / name).write_text("line\n")
        (folder / name).chmod(mode)


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder, by the hash of its bytes; links by what they name."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = _content(path)
    return found


def _content(path: Path) -> str:
    try:
        if path.stat().st_size <= SOLID_BYTES:
            return sha256(path.read_bytes()).hexdigest()
        return f"{path.stat().st_size} bytes of {path.stat().st_mtime_ns}"
    except OSError:  # closed to whoever runs the tests
        return f"{path.stat().st_size} bytes"
