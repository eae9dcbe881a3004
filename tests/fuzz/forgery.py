"""What can stand in the place of a file: of a run's that a storm damages, and of those in a stranger's folders."""

import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from tests.fuzz.call import Call
from tests.fuzz.places import CHECKPOINT, DATASET, MODEL, OTHER, RUN

HUGE_BYTES, LINE_BYTES, LEVELS = 5 << 30, 32 << 20, 10_000
OUTSIDE = "OUTSIDE"
"""In a forged value: the folder of what nobody has named."""
NOTHING = b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '<u0', 'fortran_order': False, 'shape': (2,)}".ljust(118)
"""The head of a table of numbers of no bytes."""
Forge = Callable[[Path, Path], object]


def build_outside(folder: Path) -> None:
    """What a caller has beside what he names."""
    for name in ("secret", "folder/secret", "home/.ssh/id", "home/.netrc", "home/.cache/zeromt/key", "plugin.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("raise SystemExit('canary')\n")


def _without(path: Path) -> Path:
    """The path, with nothing there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    return path


def _bytes(change: Callable[[bytes], bytes]) -> Forge:
    def forge(path: Path, _: Path) -> None:
        content = change(path.read_bytes() if path.is_file() else b"")
        _without(path).write_bytes(content)

    return forge


def _link(target: str) -> Forge:
    return lambda path, outside: _without(path).symlink_to(outside / target)


def _zeros(path: Path, _: Path) -> None:
    _without(path).touch()
    os.truncate(path, HUGE_BYTES)


def _header(change: Callable[[bytes], bytes]) -> Forge:
    """Another header of a safetensors file."""

    def forge(content: bytes) -> bytes:
        end = 8 + int.from_bytes(content[:8], "little")
        header = change(content[8:end])
        return len(header).to_bytes(8, "little") + header + content[end:]

    return _bytes(forge)


KINDS: dict[str, Forge] = {
    "flipped": _bytes(lambda content: content[:-9] + bytes(255 - byte for byte in content[-9:])),
    "half": _bytes(lambda content: content[: len(content) // 2]),
    "empty": _bytes(lambda _: b""),
    "missing": lambda path, _: _without(path),
    "link": _link("secret"),
    "link to what is missing": _link("new"),
    "link to a folder": _link("folder"),
    "link to what is right": lambda path, outside: path.symlink_to(shutil.move(path, outside / "moved")),
    "link to itself": lambda path, _: _without(path).symlink_to(path.name),
    "link to zeros": _link("/dev/zero"),
    "link to stdin": _link("/dev/stdin"),
    "link to a process": _link("/proc/self/environ"),
    "FIFO": lambda path, _: os.mkfifo(_without(path)),
    "socket": lambda path, _: os.mknod(_without(path), stat.S_IFSOCK | 0o600),
    "folder": lambda path, _: (_without(path) / "deeper").mkdir(parents=True),
    "closed": lambda path, _: path.chmod(0),
    "huge": lambda path, _: os.truncate(path, HUGE_BYTES),
    "zeros": _zeros,
    "garbled": _bytes(lambda _: bytes(range(256)) * 40),
    "text": _bytes(lambda _: b"\x1b[2J" + "\u202eword\n".encode() * 3),
    "deep list": _bytes(lambda _: b"[" * LEVELS + b"]" * LEVELS),
    "deep mapping": _bytes(lambda _: b'{"a":' * LEVELS + b"1" + b"}" * LEVELS),
    "list": _bytes(lambda _: b"[1, 2]\n"),
    "mapping": _bytes(lambda _: b'{"a": 1}\n'),
    "number": _bytes(lambda _: b"7\n"),
    "large number": _bytes(lambda _: b"9" * 5000),
    "endless line": _bytes(lambda content: content[:1] + b"x" * LINE_BYTES),
    "endless text": _bytes(lambda _: b'{"a": "' + b"x" * LINE_BYTES + b'"}'),
    "many lines": _bytes(lambda _: b"{}\n" * (LINE_BYTES // 16)),
    "repeated": _bytes(lambda content: content * max(2, (1 << 20) // max(1, len(content)))),
    "table of nothing": _bytes(lambda content: NOTHING + content[128:]),
    "header too long": _bytes(lambda content: (1 << 40).to_bytes(8, "little") + content[8:]),
    "header deep": _header(lambda _: b"[" * LEVELS),
    "header larger": _header(lambda header: re.sub(rb'("shape":\[)[\d,]*', rb"\g<1>1048576,1048576", header)),
    "header overlapping": _header(lambda header: re.sub(rb'("data_offsets":\[)[\d,]*', rb"\g<1>0,%d" % 2**60, header)),
}  # fmt: skip
"""Each is given the path and the folder of what nobody has named."""
TEXTS = "--source corpus/v.en --reference corpus/v.fr"
NEW, UPDATE = "out/new", "small.yaml name=new training.max_updates=1 evaluation.max_pairs=2 stream.retries=0"
PREPARE = "prepare small.yaml prepare.workers=1"
COMMANDS: dict[str, tuple[str, ...]] = {
    RUN: (
        f"status {RUN} --json", f"stop {RUN} --no-wait", f"log {RUN}", f"inspect {RUN}", f"inspect {CHECKPOINT}",
        f"translate {RUN} -i corpus/in.en", f"translate {CHECKPOINT} -i corpus/in.en --beam 2",
        f"translate {OTHER} -i corpus/in.en --ensemble {RUN}", f"evaluate {RUN} {TEXTS}",
        f"evaluate {RUN} --set dataset", f"compare {RUN} {OTHER} --bootstrap 20 --randomisation 20", f"report {RUN}",
        f"export {RUN} --format=ctranslate2 -o {NEW}", f"export {RUN} --format=huggingface -o {NEW}",
        f"average {RUN} --last=2 -o {NEW}", f"average {RUN} --best=2 -o {NEW}", f"batch {RUN} 5 --loss",
        f"train {UPDATE} --from={RUN}", f"{PREPARE} prepare.output=made --tokenizer-of {RUN}",
        f"import {CHECKPOINT}/model-00000-of-00001.safetensors --preset=marian_base --tokenizer={DATASET} -o {NEW}",
        f"export {RUN} --format=huggingface -o {RUN}", f"translate {OTHER} -i corpus/in.en -o {RUN}/config.yaml",
    ),
    DATASET: (
        f"inspect {DATASET}", f"batch {RUN} 5 --loss", f"evaluate {RUN} --set dataset", f"report {RUN}",
        f"compare {RUN} --bootstrap 20", f"export {RUN} --format=huggingface -o {NEW}", f"train {UPDATE}",
        "plan small.yaml --nodes=1 --gpus-per-node=2 --gpu-memory=80GB", "launch slurm small.yaml --dry-run",
        f"{PREPARE} prepare.output={DATASET}",
        f"{PREPARE} prepare.output=made prepare.tokenizer.path={DATASET}",
    ),
    MODEL: (
        f"import --huggingface {MODEL} -o {NEW}", f"inspect {MODEL}", f"translate {MODEL} -i corpus/in.en",
        f"import {MODEL}/model.safetensors --preset=marian_base --tokenizer={MODEL} -o {NEW}",
        f"export {RUN} --format=huggingface -o {MODEL}", f"average {RUN} --last=2 -o {MODEL}",
    ),
}  # fmt: skip
"""What can be done with each folder."""
MORE: dict[str, tuple[str, ...]] = {
    RUN: (
        "STOP", "launch.lock", "requeues.json", "logs/launch.log",
        "failures", "failures/1/rank0.log", "plugins", "queue", "logs", "pairs", "eval", "checkpoints",
        CHECKPOINT.removeprefix(f"{RUN}/"), "checkpoints/step-00000015", "checkpoints/tmp-x", "metrics.prom",
    ),
    DATASET: (
        "places.npy", "spans.json", "tokenizer.source.model", "tokenizer.target.model", "parts",
        "test.source.txt", "tmp-x", "score-qe.json", "score-qe.npy",
    ),
    MODEL: ("tokenizer.json", "model.safetensors.index.json", "sentencepiece.bpe.model", "pytorch_model.bin", "tmp-x"),
}  # fmt: skip
"""Names that a command looks for, or makes, beside those that are there."""
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**70, 1e300, 0.5, "", "x", "1", [], {}, [[]], {"a": 1}, [1] * 1000, "x" * 5000,
    "\x1b[31m\u202e", "caf\u00e9\n", "../../../secret", f"{OUTSIDE}/secret", f"{OUTSIDE}/folder",
    [f"{OUTSIDE}/plugin.py"], f"file://{OUTSIDE}/secret", "http://127.0.0.1:9/x", "~/.netrc", "${oc.env:HOME}",
    "${seed}", "/dev/zero", "$(touch x)", f"touch {OUTSIDE}/new", [{"path": f"{OUTSIDE}/folder"}], {"kind": "x"},
    "step-00000005", "NaN",
)  # fmt: skip
"""What can be set in a file of JSON or YAML."""


@st.composite
def forged_calls(draw: st.DrawFn, genuine: Path) -> Call:
    """A call on a stranger's folder, of which one file is forged."""
    folder = draw(st.sampled_from(sorted(COMMANDS)))
    there = (str(path.relative_to(genuine / folder)) for path in (genuine / folder).rglob("*") if path.is_file())
    file = draw(st.sampled_from([*sorted(there), *MORE[folder]]))
    how = draw(st.sampled_from(sorted(KINDS)))
    if file.endswith((".json", ".jsonl", ".yaml", "latest", "STOP", ".sha256")) and draw(st.booleans()):
        how = f"{draw(st.integers(0, 400))} {json.dumps(draw(st.sampled_from(VALUES)))}"
    return Call(argv=tuple(draw(st.sampled_from(COMMANDS[folder])).split()), forged=(f"{folder}/{file}", how))


def forge(path: Path, how: str, outside: Path) -> None:
    """Put something in the place of a file, and its size and hash into what a dataset says of it.

    A checkpoint is trusted once it agrees with its hashes: there a forged file is found by them.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    before = _described(path)
    with suppress(FileNotFoundError, IsADirectoryError):  # what is not there cannot be moved, closed or grow
        if how in KINDS:
            KINDS[how](path, outside)
        else:
            number, value = how.split(" ", 1)
            _set(path, int(number), json.loads(value.replace(OUTSIDE, str(outside))))
    listing = path.with_name("index.json")
    if listing == path:  # it may be a FIFO by now
        return
    with suppress(OSError, ValueError):
        text = listing.read_text()
        for old, new in zip(before, _described(path), strict=True):
            text = text.replace(old, new)
        listing.write_text(text)


def _described(path: Path) -> tuple[str, str]:
    if path.is_file() and path.stat().st_size < HUGE_BYTES and not path.is_char_device():
        return f'"bytes": {path.stat().st_size}', sha256(path.read_bytes()).hexdigest()
    return '"bytes": 0', sha256(b"").hexdigest()


def _set(path: Path, number: int, value: Any) -> None:
    """Another value in a file of JSON, lines of JSON, or YAML; the whole of others."""
    load = yaml.safe_load if path.suffix == ".yaml" else json.loads
    try:
        text = path.read_text()
        trees = list(map(load, text.splitlines() if path.suffix == ".jsonl" else [text]))
        holder, key = (places := list(_places(trees)))[number % len(places)]
        holder[key] = value
    except (OSError, ValueError, ZeroDivisionError):
        trees = [value]
    _without(path).write_text("".join(json.dumps(tree) + "\n" for tree in trees))  # JSON is YAML


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every value of a tree, as what holds it and its key there."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield tree, key
        yield from _places(tree[key])
