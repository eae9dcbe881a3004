"""The tests that tests/promises.md names are there."""

import ast
import re

from tests.conftest import REPO

ROW = re.compile(r"\| .+ \| `(\S+\.py)::([\w:]+)` \| (`make test`|slow) \|")


def test_every_promise_has_its_test() -> None:
    lines = (REPO / "tests" / "promises.md").read_text().splitlines()
    for line in (line for line in lines if line.startswith("| ") and line != "| promise | test | runs in |"):
        row = ROW.fullmatch(line)
        assert row, line
        body = ast.parse((REPO / row[1]).read_text()).body
        for part in row[2].split("::"):
            nodes = [node for node in body if getattr(node, "name", "") == part]
            assert len(nodes) == 1, line
            body = getattr(nodes[0], "body", [])
