"""Programs that tests ask about pairs, as files of Python."""

import sys
import zlib
from pathlib import Path

from tests.conftest import REPO

SCORER = """
import json, os, random, sys, zlib

sys.path.insert(0, sys.argv[2])
from lines import batches

draws = random.Random(os.getpid())
for batch in batches(8):
    draws.shuffle(batch)
    with open(sys.argv[1], "ab") as log:
        log.write("".join(f"{line['source']}\\t{line['target']}\\n" for line in batch).encode())
    for line in batch:
        number = zlib.crc32(f"{line['source']}{line['target']}".encode())
        score = None if number % 11 == 0 else number % 101 / 100
        print(json.dumps({"id": line["id"], "score": score}), flush=True)
"""
"""Scores pairs, in any order; some have none. It notes whom it was asked about."""


def expected(source: str, target: str) -> float | None:
    """What the scorer gives."""
    number = zlib.crc32(f"{source}{target}".encode())
    return None if number % 11 == 0 else number % 101 / 100


def scorer(folder: Path) -> list[str]:
    """The command of the scorer, which notes its pairs in `asked`."""
    (folder / "scorer.py").write_text(SCORER)
    return [sys.executable, str(folder / "scorer.py"), str(folder / "asked"), str(REPO / "examples" / "filters")]


def faulty(folder: Path, usual: dict[str, object], what: str, said: str = "") -> list[str]:
    """The command of a program that answers five pairs as usual, and then not as it should."""
    code = f"""
import json, os, sys, time

for number, text in enumerate(sys.stdin):
    line = json.loads(text)
    usual = json.dumps({{"id": line["id"], **{usual!r}}})
    if number == 5:
        if {what!r} == "ends":
            sys.exit(3)
        if {what!r} == "closes":
            os.close(1)
            time.sleep(600)
        if {what!r} == "never":
            time.sleep(600)
        usual = usual.replace(str(line["id"]), "2") if {what!r} == "twice" else {said!r}.replace("ID", str(line["id"]))
    print(usual, flush=True)
"""
    (folder / "faulty.py").write_text(code)
    return [sys.executable, str(folder / "faulty.py")]


def asked(folder: Path) -> list[str]:
    """The pairs that the scorer was asked about, sorted."""
    path = folder / "asked"
    return sorted(path.read_text().splitlines()) if path.exists() else []
