"""The folder that a call is made in: runs, a dataset and a model folder, and every kind of odd place beside them."""

import gzip
import os
import shutil
import stat
from hashlib import sha256
from pathlib import Path

from tests.forked import Forked
from tests.once import once
from tests.small import FILES, small_runs

RUN, OTHER, DATASET, MODEL = "runs/small", "runs/mixture", "dataset", "model"
CHECKPOINT = f"{RUN}/checkpoints/step-00000010"
WEIGHTS = f"{CHECKPOINT}/model-00000-of-00001.safetensors"
TEXTS = ("corpus/in.en", "corpus/v.en", "corpus/v.fr")
PIPELINE = "output: out\ninputs: {text: file}\nsteps: {sorted: {run: '/usr/bin/sort {text}', stdout: '{output}'}}\n"
MADE = (("compare", RUN, "--bootstrap=20"), ("export", RUN, "--format=huggingface", "-o", MODEL))
ODD_FILES = {
    "empty": b"", "file": b"A dog runs.\nTwo men sit.\n", "blank": b"\n\n \n\n", "fixed": b"line\n", "unreadable": b"x",
    "binary": bytes(range(256)) * 8, "latin-1": "caf\xe9\n".encode("latin-1"), "utf-16": "A dog.\n".encode("utf-16"),
    "lone-cr": b"one\rtwo\r", "long-line": b"word " * 4000 + b"\n", "text.gz": gzip.compress(b"A dog runs.\n"),
    "cut.gz": gzip.compress(b"A dog.\n" * 40)[:-20], "text.zst": b"A dog.\n", "out/old.txt": b"old\n",
    "garbled.yaml": b"a: [1\n\tb: }", "bomb.yaml": b"a: &a [x]\nb: &b [*a, *a]\nseed: *b\n", "list.yaml": b"- 1\n",
    "pipeline.yaml": PIPELINE.encode(), "hf-garbled/config.json": b"[1, 2",
    "hf-marian/config.json": b'{"model_type": "marian", "d_model": "x"}',
    "runs/bare/config.yaml": b"name: bare\n", "runs/garbled/config.yaml": b"\x00\xff",
    "runs/garbled/status.json": b"[]", "runs/garbled/metrics.jsonl": b'{"kind": 1}\n[]\nnull\n{"kind": "train"}\n',
    "dataset-garbled/index.json": b'{"format": [], "files": 1}', "closed/file": b"line\n", "read-only/file": b"line\n",
}  # fmt: skip
BROKEN = {"runs/broken": (RUN, "checkpoints/step-00000010/state.json"), "dataset-broken": (DATASET, "train-000000.tar")}
LINKS = {"loop": "loop", "dangling": "nowhere", "link-to-run": RUN, "link-to-text": TEXTS[0]}
MODES = {"closed": 0o000, "read-only": 0o555, "unreadable": 0o000, "fixed": 0o444}
ODD = (
    "", ".", "..", "~", "~nobody/x", "-", "--", "-x", "*", "$HOME", "a b", "caf\xe9", "caf\udce9", "\u2028",
    "new\nline", "\U0001f600", "missing", "missing/deeper", "x" * 300, "/".join(["y" * 200] * 25), "loop/x",
    "read-only/new", "socket", "file/x", "out", "/dev/null", "/proc/self/mem", "/proc/version", "/dev/fd/99",
    "http://127.0.0.1:9/x", "s3://none/x", "file:///none", "://", "memory://x", "runs", f"{RUN}/checkpoints",
    f"{RUN}/metrics.jsonl", "runs/bare", "runs/garbled", "dataset-garbled", "hf-garbled", "hf-marian", WEIGHTS,
    "dataset/tokenizer.model", *ODD_FILES, *BROKEN, *LINKS, *MODES,
)  # fmt: skip
"""What may stand where a name of a file or folder is wanted."""
OUTPUTS = (
    "out/new",
    "out/new.gz",
    "out/old.txt",
    "missing/x",
    "read-only/new",
    "fixed",
    "/dev/full",
    "x" * 300,
    "loop",
)


def made(forked: Forked) -> Path:
    """What commands of today make, once in a run of the tests."""

    def make(root: Path) -> None:
        shutil.copytree(small_runs(), root, dirs_exist_ok=True)
        shutil.copy(FILES / "small.yaml", root)
        for command in MADE:
            done = forked.zeromt(*command, cwd=root)
            assert done.code == 0, done.err[-4000:]

    return once("fuzz", make)


def build(genuine: Path, folder: Path) -> None:
    """Fill a new folder with all that is right, and all that is odd."""
    shutil.copytree(genuine, folder)
    for name, (whole, file) in BROKEN.items():
        shutil.copytree(folder / whole, folder / name)
        (folder / name / file).write_bytes(b"{")
    for name, content in ODD_FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    for name, target in LINKS.items():
        (folder / name).symlink_to(target)
    os.mknod(folder / "socket", stat.S_IFSOCK | 0o600)
    for name, mode in MODES.items():
        (folder / name).chmod(mode)


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder, by the hash of its bytes; links by what they name."""
    entries = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            entries[str(path.relative_to(folder))] = str(path.readlink())
        elif path.is_file() and path.stat().st_size < 1 << 26 and os.access(path, os.R_OK):
            entries[str(path.relative_to(folder))] = sha256(path.read_bytes()).hexdigest()
    return entries
