"""200,000 pairs of which a sixth is bad in seven planted ways: what each filter keeps; in parts, and after kills."""

import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from data_pipeline.inspection import read_report
from data_pipeline.prepared.dataset import Dataset
from tests.conftest import REPO, contents, environment
from tests.waiting import PATIENCE

PAIRS, WORDS, EVERY = 200_000, 4000, 40
"""Of 40 pairs seven are bad, one in each way."""
SCORER = """
import json, sys

sys.path.insert(0, sys.argv[1])
from lines import batches

for batch in batches(256):
    with open("asked", "ab") as log:
        log.write("".join(f"{line['source']}\\t{line['target']}\\n" for line in batch).encode())
    for line in batch:
        target = set(line["target"].split())
        words = line["source"].split()
        print(json.dumps({"id": line["id"], "score": sum(f"{word}o" in target for word in words) / len(words)}))
    sys.stdout.flush()
"""
"""The fraction of the source's words whose translation, the word with an o behind it, is in the target."""


def _made(folder: Path) -> list[tuple[str, str]]:
    """Write a corpus, and the scorer; the pairs."""
    random = np.random.default_rng(0)
    words = ["".join(random.choice([*"abcdefghijklmn"], random.integers(4, 9))) for _ in range(WORDS)]
    pairs: list[tuple[str, str]] = []
    for number in range(PAIRS):
        chosen = [words[n] for n in random.integers(0, WORDS // 2, random.integers(8, 20))]
        source, target = " ".join(chosen), " ".join(f"{word}o" for word in chosen)
        earlier = pairs[number - number % EVERY - 1] if number >= EVERY else (source, target)
        of_another = " ".join(f"{words[n]}o" for n in random.integers(WORDS // 2, WORDS, len(chosen)))
        bad = {
            0: (source, " "),
            1: (source, source),
            2: (f"{source}\u200b", target),
            3: (source, "да" * len(source)),
            4: (source, of_another),
            5: (source, " ".join(target.split()[: len(chosen) // 4])),
            6: earlier,
        }
        pairs.append(bad.get(number % EVERY, (source, target)) if number >= EVERY else (source, target))
    for name, side in (("a.en", 0), ("a.fr", 1)):
        (folder / name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
    (folder / "qe.py").write_text(SCORER)
    command = [sys.executable, "qe.py", str(REPO / "examples" / "filters")]
    config = {
        "target_language": "fr",
        "train": {"source": ["a.en"], "target": ["a.fr"]},
        "tokenizer": {"vocab_size": 300, "sample_pairs": 5000},
        "scores": {"qe": {"command": command, "depends": ["qe.py"], "processes": 2}},
        "filters": [{"kind": "threshold", "score": "qe", "at_least": 0.15}],
        "cleaning": {
            "identical": "drop",
            "control_characters": "drop",
            "target_scripts": ["Latin"],
            "max_length_ratio": 1.8,
            "duplicates": "drop",
        },
    }
    (folder / "a.yaml").write_text(json.dumps({"prepare": config}))
    return pairs


def _prepare(folder: Path, output: str, *words: str, seconds: float = PATIENCE) -> bool:
    """Prepare in a process; whether it came to its end before it was killed."""
    command = [sys.executable, "-m", "zeromt", "prepare", "a.yaml", f"prepare.output={output}", *words]
    process = subprocess.Popen(command, cwd=folder, env=environment(), stdout=subprocess.DEVNULL)
    try:
        assert process.wait(seconds) == 0
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return False
    return True


@pytest.mark.slow
def test_each_filter_finds_what_was_planted_for_it(tmp_path: Path) -> None:
    pairs = _made(tmp_path)
    wanted = Counter("\t".join(pair) for pair in pairs if pair[1].strip())
    assert _prepare(tmp_path, "whole")
    report = read_report(Dataset.load(tmp_path / "whole"))
    each = PAIRS // EVERY - 1
    assert report.dropped() == {
        "control characters": each,
        "empty": each,
        "identical": each,
        "target script": each,
        "threshold of qe": each,
        "too long": 0,
        "length ratio": each,
        "duplicate": each,
    }
    assert Counter((tmp_path / "asked").read_text().splitlines()) == wanted, "each pair was asked about once"
    whole = contents(tmp_path / "whole")
    for parts in (3, 7):
        (tmp_path / "asked").unlink()
        for number in range(parts, 0, -1):
            assert _prepare(tmp_path, "parts", f"--part={number}/{parts}")
        assert _prepare(tmp_path, "parts", "--merge")
        assert contents(tmp_path / "parts") == whole
        assert Counter((tmp_path / "asked").read_text().splitlines()) == wanted, "in parts too"
        shutil.rmtree(tmp_path / "parts")
    random, kills = np.random.default_rng(1), 0
    while not (tmp_path / "killed").exists() or kills < 10:
        shutil.rmtree(tmp_path / "killed", ignore_errors=True)
        kills += not _prepare(tmp_path, "killed", seconds=float(random.uniform(2, 6)) if kills < 10 else PATIENCE)
    assert contents(tmp_path / "killed") == whole
