"""Scores of Bicleaner AI (Zaragoza-Bernabeu et al., 2022) for `prepare.scores`. UNTRIED: its models come from a hub.

    scores:
      bicleaner:
        command: [python, examples/filters/bicleaner.py, MODEL]
        depends: [MODEL]
        batch: 20000

MODEL is the folder of a model, and `bicleaner-ai-classify` on the path. It loads the model anew for each batch, so
these are large.
"""

import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from lines import batches

CLASSIFY = ["bicleaner-ai-classify", "--scol", "1", "--tcol", "2", "--score_only", "--quiet", "-", "-"]


def main() -> None:
    for batch in batches(20_000):
        sides = ((line[side].replace("\t", " ") for side in ("source", "target")) for line in batch)
        text = "".join(f"{source}\t{target}\n" for source, target in sides)
        done = subprocess.run([*CLASSIFY, sys.argv[1]], input=text.encode(), stdout=subprocess.PIPE, check=True)
        for line, score in zip(batch, done.stdout.split(), strict=True):
            print(json.dumps({"id": line["id"], "score": float(score)}))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
