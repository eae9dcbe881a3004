"""Translations by a Marian model, for the engine `command` of `zeromt translate`.

    pip install --no-deps pymarian && pip install pyyaml numpy portalocker tqdm requests huggingface_hub

    kind: command
    command: [python, examples/teachers/pymarian_client.py, -m, model.npz, -v, vocab.spm, vocab.spm, -b, "4",
              --cpu-threads, "2", --quiet]
    name: model.npz
    in_flight: 256

All arguments are Marian's. Without `--cpu-threads` it looks for a GPU, which this package does not use.
"""

import json
import shlex
import sys

from lines import batches
from pymarian import Translator

BATCH = 64


def main() -> None:
    translator = Translator(shlex.join(sys.argv[1:]))
    for batch in batches(BATCH):
        for line, text in zip(batch, translator.translate([line["source"] for line in batch]), strict=True):
            print(json.dumps({"id": line["id"], "candidates": [text]}), flush=True)


if __name__ == "__main__":
    main()
