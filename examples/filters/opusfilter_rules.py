"""OpusFilter's filters and preprocessors (Aulamo et al., 2020) as a filter of `zeromt prepare`.

    filters:
      - kind: command
        command: [PYTHON, examples/filters/opusfilter_rules.py, rules.yaml]
        depends: [rules.yaml]

PYTHON is that of an environment with `pip install opusfilter` (tried: 3.3.1 on Python 3.11). rules.yaml has the lists
`preprocessors` and `filters` of OpusFilter's own configuration, or either. All filters must accept a pair.
"""

import json
import sys
from itertools import compress
from pathlib import Path
from typing import Any

from lines import batches
from opusfilter.pipeline import FilterPipeline, PreprocessorPipeline
from ruamel.yaml import YAML


def main() -> None:
    rules: dict[str, Any] = YAML(typ="safe").load(Path(sys.argv[1]))
    change = PreprocessorPipeline.from_config(rules.get("preprocessors", []))
    filters = FilterPipeline.from_config(rules.get("filters", [])).filters
    for batch in batches(256):
        pairs = [(line["source"], line["target"]) for line in batch]
        changed = list(change.process(pairs)) if change.preprocessors else pairs
        keep = [True] * len(batch)
        for one in filters:
            rows = list(compress(range(len(batch)), keep))
            for row, score in zip(rows, one.score([changed[row] for row in rows]), strict=True):
                keep[row] = bool(one.accept(score))
        for line, pair, kept in zip(batch, changed, keep, strict=True):
            print(json.dumps({"id": line["id"], "keep": kept, "source": pair[0], "target": pair[1]}))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
