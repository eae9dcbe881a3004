"""The examples in examples/filters whose programs have a stand-in here."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import REPO, environment


def test_bicleaner_scores_by_pair(tmp_path: Path) -> None:
    stand_in = f"#!{sys.executable}\nimport sys\nfor line in sys.stdin: print(len(line.split('\\t')[1]) / 100)\n"
    (tmp_path / "bicleaner-ai-classify").write_text(stand_in)
    (tmp_path / "bicleaner-ai-classify").chmod(0o755)
    pairs = [{"id": n, "source": "a\tb" * n, "target": "x\ty" * n} for n in range(1, 40)]
    done = subprocess.run(
        [sys.executable, str(REPO / "examples" / "filters" / "bicleaner.py"), "model"],
        input="".join(f"{json.dumps(pair)}\n" for pair in pairs),
        env={**environment(), "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers == [{"id": n, "score": (3 * n + 1) / 100} for n in range(1, 40)]
