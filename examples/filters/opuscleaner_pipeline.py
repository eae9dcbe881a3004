"""A pipeline of OpusCleaner (HPLT) as a filter of `zeromt prepare`.

    filters:
      - kind: command
        command: [PYTHON, examples/filters/opuscleaner_pipeline.py, my.filters.json, en, fr]
        depends: [my.filters.json]
        batch: 2048

PYTHON is that of an environment with `pip install opuscleaner` (tried: 0.7.1 on Python 3.11). my.filters.json is what
OpusCleaner's page writes, or `{"version": 1, "files": [], "filters": [{"filter": "max_length", "parameters": {...}}]}`.
Its programs are started for each batch. A pair may be dropped or changed,
but not split; its tabs become spaces.
"""

import json
import subprocess
import sys
from pathlib import Path

from lines import batches
from opuscleaner.clean import Pipeline, PipelineStep
from opuscleaner.config import FILTER_PATH
from opuscleaner.filtering import FilterPipeline, list_filters, set_global_filters
from pydantic import parse_obj_as

NO_TABS = str.maketrans("\t\r", "  ")


def after(step: PipelineStep, env: dict[str, str] | None, lines: list[str]) -> list[str | None]:
    """What a step makes of each line; None for one that it drops.

    It does not say which lines it has dropped. So they are found: either all lines that came are among those that went,
    or as many came as went; a batch for which neither is true is given to it in halves.
    """
    given = "".join(f"{line}\n" for line in lines).encode()
    done = subprocess.run(
        step.command, shell=True, cwd=step.basedir, env=env, input=given, stdout=subprocess.PIPE, check=True
    )
    came = done.stdout.decode().split("\n")[:-1]
    left = iter([*came, None])
    expected, found = next(left), []
    for line in lines:
        found.append(line if line == expected else None)
        expected = next(left) if line == expected else expected
    if expected is None:
        return found
    if len(came) == len(lines):
        return list(came)
    if len(lines) == 1:
        raise ValueError(f"{step.name} made {len(came)} lines of one; leave it out")
    middle = len(lines) // 2
    return [*after(step, env, lines[:middle]), *after(step, env, lines[middle:])]


def main() -> None:
    known = {one.name: one for one in list_filters(FILTER_PATH)}
    set_global_filters(known.values())
    config = parse_obj_as(FilterPipeline, json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    pipeline = Pipeline(known, sys.argv[2:4], config)
    for batch in batches(2048):
        left = {one["id"]: "\t".join(one[side].translate(NO_TABS) for side in ("source", "target")) for one in batch}
        for step in pipeline.steps:
            found = after(step, pipeline.env, [*left.values()]) if left else []
            left = {number: line for number, line in zip(left, found, strict=True) if line is not None}
        for one in batch:
            sides = left[one["id"]].split("\t") if one["id"] in left else None
            answer = {"keep": False} if sides is None else {"source": sides[0], "target": sides[1]}
            print(json.dumps({"id": one["id"], **answer}))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
