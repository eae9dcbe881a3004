"""Translations by a Marian model, for the engine `command` of `zeromt translate`: `pip install --no-deps pymarian`.

    kind: command
    command: [python, examples/teachers/pymarian_client.py, -m, model.npz, -v, vocab.spm, vocab.spm, -b, "4"]
    name: model.npz
    in_flight: 256

All arguments are Marian's. It decodes on CPUs.
"""

import json
import shlex
import sys

from pymarian import Translator

BATCH = 64


def main() -> None:
    translator = Translator(shlex.join(sys.argv[1:]))
    waiting = []
    for text in iter(sys.stdin.readline, ""):
        waiting.append(json.loads(text))
        if len(waiting) == BATCH:
            answer(translator, waiting)
            waiting = []
    answer(translator, waiting)


def answer(translator: Translator, lines: list) -> None:
    if not lines:
        return
    for line, text in zip(lines, translator.translate([line["source"] for line in lines]), strict=True):
        print(json.dumps({"id": line["id"], "candidates": [text]}), flush=True)


if __name__ == "__main__":
    main()
