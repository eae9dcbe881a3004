"""One rank of `zeromt train`: `benchmarks.device.rank OUT ARGUMENT...` writes its peak memory to OUT.RANK as JSON."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.device.plain_loop import peak_gib
from zeromt.cli.main import main as zeromt


def main(out: str, arguments: Sequence[str]) -> int:
    """Run `zeromt train` in this process; writes the peak memory of its GPU."""
    code = zeromt(["train", *arguments])
    if code == 0:
        peak = peak_gib("cuda" if torch.cuda.is_available() else "cpu")
        Path(f"{out}.{os.environ.get('RANK', '0')}").write_text(json.dumps(peak))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
